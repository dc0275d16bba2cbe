"""What comes back from a point: Hydra's own JobReturn, in a file of the point."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurmopt import log
from slurmopt.errors import JobError, one_line
from slurmopt.grid.records import Records
from slurmopt.hydra_app import pickles
from slurmopt.run_folder.archive import Archived
from slurmopt.run_folder.layout import RunFolder

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn


@dataclass(frozen=True)
class Returned:
    """One attempt's account of a point."""

    attempt: int
    job: JobReturn
    trace: str | None = None
    """The traceback of what was raised: a pickled exception has none."""
    lost: str | None = None
    """Why the value stayed behind in the job, where it has no pickle."""


def write(point: RunFolder, attempt: int, job: JobReturn) -> None:
    """Leaves the return of rank 0 in the point's folder."""
    value = job._return_value
    raised = isinstance(value, BaseException)
    trace = "".join(traceback.format_exception(value)) if raised else None
    lost = _lost(value)
    if lost is not None:
        log.warning(lost)
        job._return_value = JobError(headline(value)) if raised else None
    pickles.place(point.returned, pickles.dumps(Returned(attempt, job, trace, lost)))
    job._return_value = value


def _lost(value: Any) -> str | None:
    """One line where a value cannot make the way: exceptions with arguments of their own often fail on arrival."""
    try:
        pickles.loads(pickles.dumps(value))
    except Exception as error:  # noqa: BLE001 - a value's own pickling may raise anything
        return f"the function's {type(value).__name__} cannot go back to the launcher: {headline(error)}"
    return None


def headline(error: BaseException) -> str:
    """The error in one line."""
    return one_line(f"{type(error).__name__}: {error}")


def of_point(records: Records, number: int) -> Returned | None:
    """What the latest attempt of a point left; raises as `read`."""
    for _ in range(2):
        kept = records.latest(number)
        left = None if kept is None else read(kept)
        if left is not None or isinstance(kept, Archived):
            break  # else its files may have been archived between the two
    return left


def read(point: RunFolder | Archived) -> Returned | None:
    """What the point left, or None; JobError where somebody else could have written it, or where it is damaged."""
    if isinstance(point, Archived):
        path, place = point.returns, point.returned
        if place is None:
            return None
    else:
        path, place = point.returned, (0, -1)
    try:
        content = pickles.read(path, *place)
    except FileNotFoundError:
        return None
    # What the script defines is called `__mp_main__` in its jobs, and `__main__` here.
    sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
    try:
        returned = pickles.loads(content)
    except Exception as error:
        raise JobError(f"{path} cannot be unpickled: {headline(error)}") from error
    if not isinstance(returned, Returned):
        raise JobError(f"{path} holds no return of a point")
    return returned
