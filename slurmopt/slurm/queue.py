"""This user's jobs as squeue knows them: one call for all, shared for 15 seconds by all that watch."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from slurmopt.errors import SlurmError, SlurmRefused, SlurmUnreachable
from slurmopt.slurm import cache, client
from slurmopt.slurm.environment import clean_environment
from slurmopt.slurm.states import is_over

MAX_AGE = 15.0
"""Seconds for which an answer serves."""

_OLD_AGE = 60.0
"""Seconds for which it serves while another is asking."""
_TIMEOUT = 30.0
_SACCT_TIMEOUT = 30.0
_SACCT_SINCE = "now-30days"

# Without a size squeue cuts at 20 characters; with 0 it never does. In the order of QueueEntry's fields.
_FIELDS = (
    "JobArrayID", "State", "Reason", "NodeList", "StartTime", "TimeUsed", "TimeLimit", "RestartCnt", "BatchHost",
    "Comment", "Command", "EndTime", "Requeue",
)  # fmt: skip


@dataclass(frozen=True)
class QueueEntry:
    """A job or array task."""

    job_id: str
    """`A`, or `A_a` for a task of an array, or `A_[0-9,12%8]` for those that have not started."""
    state: str
    """Slurm's long word, such as RUNNING; `slurmopt.slurm.states` has ours."""
    reason: str
    """Slurm's word for why it waits or failed, or ""."""
    nodes: str
    """In Slurm's short form; "" before the start."""
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
    """Whether Slurm may start it again; None where it does not say."""

    def runs(self, script: str) -> bool:
        """Whether it was submitted with `script`; squeue shows the script's arguments behind it, without quotes."""
        return f"{self.command} ".startswith(f"{script} ")

    @property
    def tasks(self) -> int:
        """How many jobs it stands for: of an array all those that wait have one entry."""
        several = _SEVERAL.fullmatch(self.job_id)
        return sum(map(len, indices(several[2]))) if several else 1

    @property
    def never_ran(self) -> bool:
        """Whether Slurm refused it: sbatch says no, and yet a FAILED job without nodes is in the books."""
        return self.state == "FAILED" and not self.nodes


class Queue(dict[str, QueueEntry]):
    """Job id → entry, as it was `age` seconds ago.

    The tasks of an array that have not started share one entry, such as `A_[0-99%8]`: ten thousand cost no more than
    one. `get` and `in` find it by the id of each of its tasks."""

    age: float = 0.0
    _arrays: dict[str, list[tuple[list[range], QueueEntry]]] | None = None

    def get(self, job: str, default: Any = None, /) -> Any:
        found = super().get(job)
        return self._of_array(job) or default if found is None else found

    def __contains__(self, job: object) -> bool:
        return super().__contains__(job) or (isinstance(job, str) and self._of_array(job) is not None)

    def waiting(self, array: str) -> list[tuple[list[range], QueueEntry]]:
        """Of the array job `array` the entries of several tasks, each with the indices of these."""
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


_SEVERAL = re.compile(r"(\d+)_\[([^\]]*)\]?")
_SPAN = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


def indices(text: str) -> list[range]:
    """Of "0-9,12%3" or "0-98:2": what stands in the brackets of an array job's id. What is no index is left out."""
    found = (_SPAN.fullmatch(part) for part in text.partition("%")[0].split(","))
    return [range(int(one[1]), int(one[2] or one[1]) + 1, int(one[3] or 1) or 1) for one in found if one]


def queue(fresh: bool = False) -> Queue:
    """This user's jobs, those that ended a few minutes ago too, not older than 15 s; `fresh`: asked from Slurm now.

    Raises what squeue's failure was, which is shared for as long: a slurmctld in trouble is not asked more often.
    """
    if fresh:
        return _ask()
    stored = _stored(MAX_AGE)
    if stored is not None:
        return stored
    with cache.lock("queue", 0) as mine:
        if mine:
            return _stored(MAX_AGE) or _ask()
    stored = _stored(_OLD_AGE)
    return _wait() if stored is None else stored


def _wait() -> Queue:
    """Another is asking, and there is no older answer. It may also have been stopped by Ctrl-Z, for ever."""
    with cache.lock("queue", _TIMEOUT + 5):
        stored = _stored(MAX_AGE)
        return _ask() if stored is None else stored


def _stored(max_age: float) -> Queue | None:
    found = cache.read("queue", max_age)
    if found is None:
        return None
    value, age = found
    try:
        if "error" in value:
            raise _ERRORS[value["error"]](value["message"])
        answer = Queue({row[0]: QueueEntry(*row) for row in value["jobs"]})
    except (TypeError, KeyError, IndexError):
        return None  # left by another version, or damaged
    answer.age = age
    return answer


_ERRORS: dict[str, type[SlurmError]] = {error.__name__: error for error in (SlurmUnreachable, SlurmRefused)}


def _ask() -> Queue:
    asked = time.time()
    try:
        entries = _squeue()
    except (SlurmUnreachable, SlurmRefused) as error:
        # From now on: waiting for it took longer than an answer is shared for.
        cache.write("queue", {"error": type(error).__name__, "message": str(error)}, time.time())
        raise
    cache.write("queue", {"jobs": [astuple(entry) for entry in entries]}, asked)
    return Queue({entry.job_id: entry for entry in entries})


def _squeue() -> list[QueueEntry]:
    # Job names and comments may hold anything, newlines too, but not a word drawn after they were written.
    field, record = (f"<{os.urandom(8).hex()}>" for _ in range(2))
    wanted = ",".join(f"{name}:0{record if name == _FIELDS[-1] else field}" for name in _FIELDS)
    argv = ["squeue", "--me", "--states=all", "--noheader", "--Format", wanted]
    # Without the variable squeue cuts the indices of an array at 64 characters.
    environment = {**clean_environment(os.environ), "SLURM_BITSTR_LEN": "0"}
    output = client.run(argv, _TIMEOUT, environment, time_format="%s")
    return parse_queue(output, field, record)


def parse_queue(output: str, field: str, record: str) -> list[QueueEntry]:
    """squeue's answer, whose fields end in `field` and jobs in `record`."""
    rows = [row.split(field) for row in output.split(record)]
    return [_entry(row) for row in rows if len(row) == len(_FIELDS)]


def _entry(row: list[str]) -> QueueEntry:
    values: list[Any] = [_known(value) for value in row]
    job_id, state, reason, nodes, start, used, limit, restarts, host, comment, command, end, requeue = values
    return QueueEntry(
        job_id=job_id.split("\n")[-1],  # the newline of the job before, or a line "CLUSTER: name"
        state=state,
        reason="" if reason == "None" else reason,
        nodes=nodes,
        start=float(start) if start.isdigit() else None,
        time_used=clock_seconds(used),
        time_limit=clock_seconds(limit),
        restarts=int(restarts) if restarts.isdigit() else 0,
        batch_host=host,
        comment=comment,
        command=command,
        end=float(end) if end.isdigit() else None,
        requeue={"0": False, "1": True}.get(requeue),
    )


def _known(value: str) -> str:
    return "" if value in ("(null)", "N/A", "n/a", "None assigned") else value


def clock_seconds(text: str) -> int | None:
    """Seconds of "1-02:03:04", "2:03:04" or "3:04"; None of "UNLIMITED", "INVALID" and the like."""
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts) or not (days or "0").isdigit():
        return None
    hours, minutes, secs = ([0, 0, 0] + [int(part) for part in parts])[-3:]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + secs


@dataclass(frozen=True)
class Sought:
    """What tells the job of one submission from all others."""

    token: str
    """In its comment, unless the site rewrites comments."""
    command: str | None = None
    """The script and its arguments, as squeue shows them; None where the token alone is to tell."""
    known: frozenset[str] = frozenset()
    """Jobs of that command from earlier submissions."""

    def is_job(self, entry: QueueEntry) -> bool:
        """Whether `entry` is it. A job that Slurm took into its books only to refuse it is not."""
        if self.token in entry.comment:
            return not entry.never_ran
        return entry.command.strip() == self.command and not is_over(entry.state) and _plain(entry) not in self.known


def find_token(token: str) -> str | None:
    """As `find_job`, by the token alone."""
    return find_job(Sought(token))


def find_job(sought: Sought) -> str | None:
    """The job's id, as sbatch would have said it: of an array, the array's.

    Asks squeue, then scontrol, as a site's wrapper or cache may answer for squeue, and sacct where accounting runs, for
    jobs that both have forgotten. Raises what kept Slurm from answering.
    """
    from slurmopt.slurm.absence import all_jobs

    job = _found(queue(fresh=True), sought) or _found(all_jobs(), sought)
    if job is not None:
        return job
    from slurmopt.slurm.facts import facts

    return _find_in_accounting(sought.token) if facts().accounting else None


def with_token(jobs: Mapping[str, QueueEntry], token: str) -> str | None:
    """As `find_token`, among what squeue has said already."""
    return _found(jobs, Sought(token))


def _found(jobs: Mapping[str, QueueEntry], sought: Sought) -> str | None:
    return next((_plain(entry) for entry in jobs.values() if sought.is_job(entry)), None)


def _plain(entry: QueueEntry) -> str:
    """The number of the job, or of the array or the heterogeneous job that it is a part of."""
    return entry.job_id.split("_")[0].split("+")[0]


def _find_in_accounting(token: str) -> str | None:
    for job_id, state, nodes, *texts in _sacct("JobID,State,NodeList,Comment,SubmitLine"):
        refused = state == "FAILED" and _known(nodes) == ""
        if not refused and any(token in text for text in texts):
            return job_id.split("_")[0].split("+")[0]
    return None


def states_in_accounting(scripts: Mapping[str, str]) -> dict[str, str]:
    """Slurm's words for how jobs ended that squeue has forgotten: job id → the script that it ran, one sacct for all.

    A job that accounting does not know, or knows with another script (its number was used again), is left out.
    Raises what kept sacct from answering.
    """
    rows = _sacct("JobID,State,SubmitLine", f"--jobs={','.join(scripts)}")
    return {job_id: state for job_id, state, line in rows if job_id in scripts and scripts[job_id] in line}


def _sacct(fields: str, *options: str) -> list[tuple[str, ...]]:
    """This user's jobs of the last weeks, a row of `fields` each; JobID is the first."""
    mark = f"<{os.urandom(8).hex()}>"
    argv = [
        "sacct", "--noheader", "--allocations", "--parsable", f"--delimiter={mark}", f"--user={os.geteuid()}",
        f"--starttime={_SACCT_SINCE}", f"--format={fields}", *options,
    ]  # fmt: skip
    said = client.run(argv, _SACCT_TIMEOUT, clean_environment(os.environ)).split(mark)
    rows = zip(*[iter(said)] * (fields.count(",") + 1), strict=False)
    return [(row[0].strip(), *row[1:]) for row in rows]
