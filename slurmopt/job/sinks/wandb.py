"""Sends metrics to Weights & Biases by its own client: one run there for all attempts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from slurmopt.config.metrics import Wandb
from slurmopt.job.sinks.record import Place, Record, Unusable
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import FINISHED, REQUEUE

_STEP = "step"
_LONGEST_ID = 128
_INIT_SECONDS = 60


def open_sink(options: Wandb, place: Place) -> WandbRun:
    """Resumes the run there, or makes it. Raises Unusable, and what the client raises."""
    try:
        import wandb
    except ImportError as error:
        raise Unusable("wandb is not installed for this Python: pip install 'slurmopt[wandb]'") from error
    run = wandb.init(
        project=place.filled(options.project or "", "metrics.wandb.project"),
        entity=None if options.entity is None else place.filled(options.entity, "metrics.wandb.entity"),
        id=stable_id(place.folder),
        name=f"{place.folder.name}/{place.folder.id}",
        group=place.folder.name,
        resume="allow",
        mode=options.mode,
        dir=str(place.folder.path),
        # Its own measurements would read the GPUs a second time.
        settings=wandb.Settings(silent=True, console="off", init_timeout=_INIT_SECONDS, x_disable_stats=True),
    )
    run.define_metric("*", step_metric=_STEP)
    return WandbRun(run)


def stable_id(folder: RunFolder) -> str:
    """The id of the run there: the same in all attempts."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", f"{folder.name}-{folder.id}")[-_LONGEST_ID:]


class WandbRun:
    """The run there. The client has a queue and a process of its own."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, records: Sequence[Record]) -> None:
        """The step is a metric as others: W&B's own never goes back, and a restart may repeat steps."""
        for record in records:
            step = {} if record.step is None else {_STEP: record.step}
            names = {name: f"hardware/{name}" if record.hardware else name for name in record.values}
            self._run.log({**step, **{names[name]: value for name, value in record.values.items()}})

    def close(self, outcome: str | None) -> None:
        self._run.finish(exit_code=0 if outcome in (FINISHED, REQUEUE) else 1)
