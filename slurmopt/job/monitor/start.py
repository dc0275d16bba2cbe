"""Starts the sampler of a node, and ends it with the rank that started it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from slurmopt import log
from slurmopt.config.monitor import Sampling
from slurmopt.job.detached import Detached
from slurmopt.job.facts.rank_facts import RankFacts, in_slurm_step
from slurmopt.job.monitor.here import Here
from slurmopt.run_folder.access.open_folders import handed_on
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.process import started_at

LEAVE = b"q"
"""What the rank writes when it ends. The end of the pipe alone may be the work of a training that closes all files."""
_SECONDS = 1.0


class Sampler:
    """A sampler that runs. It leaves when `close` asks it to, and when this process is gone."""

    def __init__(self, here: Here) -> None:
        """Raises OSError if it cannot be started."""
        self._process = Detached("slurmopt.job.monitor", [here.to_json_arg()])
        self._node = here.node
        self._measures_from = time.monotonic() + here.every

    def close(self) -> None:
        """Asks the sampler to write its last row and to leave, and waits for that for a second at most. Does nothing in
        a forked child, and where the training has closed the pipe."""
        why = self._process.close(LEAVE, _SECONDS)
        if why is not None and time.monotonic() - _SECONDS >= self._measures_from:  # else it may only have begun
            log.warning(f"the sampler of {self._node} {why}: the last measurements are missing")


def start(
    sampling: Sampling | None, folder: RunFolder, attempt: int, facts: RankFacts, whole_job: bool = False
) -> Sampler | None:
    """Starts the sampler of this node, if this is its local rank 0. Without one the training runs as well: why it could
    not be started is a line in the log. `whole_job`: it measures all steps of the job on this node."""
    if sampling is None or facts.local_rank != 0:
        return None
    here = Here(
        folder=str(folder.path),
        attempt=attempt,
        node=facts.node,
        pid=os.getpid(),
        pid_started=started_at(os.getpid()),
        ranks=_ranks(facts),
        every=sampling.every,
        sources=sampling.sources,
        whole_job=whole_job,
        handed=handed_on(),
    )
    try:
        return Sampler(here)
    except OSError as error:
        log.warning(f"the sampler of {facts.node} cannot be started: {error}")
        return None


@contextlib.contextmanager
def sampled(
    sampling: Sampling | None, folder: RunFolder, attempt: int, facts: RankFacts, whole_job: bool = False
) -> Iterator[None]:
    """Runs the sampler during the block; see `start`."""
    sampler = start(sampling, folder, attempt, facts, whole_job)
    try:
        yield
    finally:
        if sampler is not None:
            sampler.close()


def _ranks(facts: RankFacts) -> list[int]:
    """The ranks of this node. Slurm lists them, as they need not follow each other."""
    listed = os.environ.get("SLURM_GTIDS", "") if in_slurm_step(os.environ) else ""
    ranks = [int(word) for word in listed.split(",") if word.strip().isdecimal()]
    if facts.rank in ranks:
        return ranks
    return [*range(facts.rank, facts.rank + facts.local_world_size)]
