"""Dataclasses of jobs and array tasks as squeue lists them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from slurmopt.slurm.states import is_over


@dataclass(frozen=True)
class QueueEntry:
    """A job or array task."""

    job_id: str
    """`A`; `A_a` for a task of an array; `A_[0-9,12%8]` for the tasks that have not started."""
    state: str
    """Slurm's long form, such as RUNNING; `slurmopt.slurm.states` maps it to slurmopt's words."""
    reason: str
    """Slurm's reason why it waits or failed, or ""."""
    nodes: str
    """A hostlist expression; "" before the start."""
    start: float | None
    """When it started, or is expected to; seconds since 1970."""
    time_used: int | None
    """Seconds."""
    time_limit: int | None
    """Seconds; None is without limit."""
    restarts: int
    batch_host: str
    comment: str
    command: str = ""
    """The script that was submitted."""
    end: float | None = None
    """When it ended, or will at the latest; seconds since 1970."""
    requeue: bool | None = None
    """Whether Slurm may requeue it; None if Slurm does not tell."""

    def runs(self, script: str) -> bool:
        """Whether it was submitted with `script`. squeue shows the script's arguments after it, without quotes."""
        return f"{self.command} ".startswith(f"{script} ")

    @property
    def tasks(self) -> int:
        """The number of jobs in this entry: the waiting tasks of an array share one."""
        several = _SEVERAL.fullmatch(self.job_id)
        return sum(map(len, indices(several[2]))) if several else 1

    @property
    def never_ran(self) -> bool:
        """Whether Slurm refused the job: sbatch failed, but Slurm lists a FAILED job without nodes."""
        return self.state == "FAILED" and not self.nodes


class Queue(dict[str, QueueEntry]):
    """Maps job ids to entries, as they were `age` seconds ago.

    The tasks of an array that have not started share one entry, such as `A_[0-99%8]`. `get` and `in` find it by the id
    of each of its tasks."""

    age: float = 0.0
    _arrays: dict[str, list[tuple[list[range], QueueEntry]]] | None = None

    def get(self, job: str, default: Any = None, /) -> Any:
        entry = super().get(job)
        return self._of_array(job) or default if entry is None else entry

    def __contains__(self, job: object) -> bool:
        return super().__contains__(job) or (isinstance(job, str) and self._of_array(job) is not None)

    def waiting(self, array: str) -> list[tuple[list[range], QueueEntry]]:
        """The entries of several tasks of the array job `array`, each with their indices."""
        if self._arrays is None:
            self._arrays = {}
            for entry in self.values():
                if match := _SEVERAL.fullmatch(entry.job_id):
                    self._arrays.setdefault(match[1], []).append((indices(match[2]), entry))
        return self._arrays.get(array, [])

    def _of_array(self, job: str) -> QueueEntry | None:
        array, _, task = job.partition("_")
        if not (task.isascii() and task.isdecimal()):
            return None
        for spans, entry in self.waiting(array):
            if any(int(task) in span for span in spans):
                return entry
        whole = super().get(array)  # cancelled before any of its tasks had started
        return whole if whole is not None and is_over(whole.state) else None


_SEVERAL = re.compile(r"((?:local-)?\d+)_\[([^\]]*)\]?")


_SPAN = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


def indices(text: str) -> list[range]:
    """The indices in "0-9,12%3" or "0-98:2", the part in brackets of an array job's id. Other text is skipped."""
    spans = (_SPAN.fullmatch(part) for part in text.partition("%")[0].split(","))
    return [range(int(span[1]), int(span[2] or span[1]) + 1, int(span[3] or 1) or 1) for span in spans if span]


def without_placeholder(value: str) -> str:
    """What Slurm prints of a field; "" where it prints that the field is not set."""
    return "" if value in ("(null)", "N/A", "n/a", "None assigned") else value
