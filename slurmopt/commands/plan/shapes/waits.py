"""When each shape would start if it were submitted now, as Slurm estimates it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from slurmopt.errors import SlurmError, one_line
from slurmopt.slow_notice import slow_notice
from slurmopt.units import human_seconds


@dataclass(frozen=True)
class Wait:
    """Slurm's hint for one shape."""

    seconds: float | None
    """None where Slurm cannot tell."""
    text: str

    @property
    def short(self) -> str:
        if self.seconds is None:
            return self.text
        return "now" if self.seconds < 5 else human_seconds(self.seconds)


def waits(launches: list[list[str]], config_dir: str | None) -> list[Wait | None]:
    """One for each launch, given by its overrides: a list of as many. What Slurm refuses says why."""
    with slow_notice("asking Slurm when each would start"):
        return [_wait(overrides, config_dir) for overrides in launches]


def _wait(overrides: list[str], config_dir: str | None) -> Wait | None:
    from slurmopt.launching import run_plan
    from slurmopt.slurm.cluster.estimate import estimated_start
    from slurmopt.slurm.script.render import render

    job = run_plan.plan(overrides, config_dir).job
    try:
        found = estimated_start(render(job))
    except SlurmError as error:
        return Wait(None, one_line(str(error)))
    if found.start is None:
        return Wait(None, found.text)
    return Wait(max(0.0, (found.start - datetime.now()).total_seconds()), found.text)
