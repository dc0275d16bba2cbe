"""The return value of a point: Hydra's JobReturn, in a file in the folder of the point."""

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
    """The return of one attempt of a point."""

    attempt: int
    job: JobReturn
    trace: str | None = None
    """The traceback of the exception as text, because a pickled exception has none."""
    lost: str | None = None
    """The reason why the value could not be pickled; None if it was."""


def write(point: RunFolder, attempt: int, job: JobReturn) -> None:
    """Writes the return of rank 0 to the folder of the point."""
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
    """Returns the reason, one line, if a value cannot be pickled and unpickled, else None. Exceptions with additional
    constructor arguments often fail to unpickle."""
    try:
        pickles.loads(pickles.dumps(value))
    except Exception as error:  # noqa: BLE001 - pickling calls methods of the value, which may raise anything
        return f"the function's {type(value).__name__} cannot go back to the launcher: {headline(error)}"
    return None


def headline(error: BaseException) -> str:
    """Returns the type and message of an error in one line."""
    return one_line(f"{type(error).__name__}: {error}")


def of_point(records: Records, number: int) -> Returned | None:
    """Returns the return of the latest attempt of a point, or None. Raises like `read`."""
    for _ in range(2):
        kept = records.latest(number)
        left = None if kept is None else read(kept)
        if left is not None or isinstance(kept, Archived):
            break  # otherwise its files may have been archived in between
    return left


def read(point: RunFolder | Archived) -> Returned | None:
    """Returns the return of a point, or None if there is none. Raises JobError if another user could have written the
    file, or if it is damaged."""
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
    # The module of the script is `__mp_main__` in its jobs and `__main__` in this process.
    sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
    try:
        returned = pickles.loads(content)
    except Exception as error:
        raise JobError(f"{path} cannot be unpickled: {headline(error)}") from error
    if not isinstance(returned, Returned):
        raise JobError(f"{path} holds no return of a point")
    return returned
