"""What people need to know first of a run that failed: the error, where it was raised, and why nobody restarts it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from slurmopt.errors import one_line
from slurmopt.restart import causes
from slurmopt.restart.explain import not_restarted
from slurmopt.run_folder.json_values import as_int, text
from slurmopt.runs.status.failure import Failure, failure
from slurmopt.runs.status.query import Status
from slurmopt.runs.status.state import FAILED

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>\S+))?', re.MULTILINE)
_OF_COMMAND = re.compile(r"(?P<how>.{1,200}? ended with exit status \d+): (?P<said>.+)")
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen ")
_DEFAULT = (causes.USER_ERROR, causes.KILLED, causes.UNKNOWN)
"""Causes that say no more than the state or the error."""


@dataclass(frozen=True)
class Account:
    """Each is one line, or "" where nothing is known."""

    error: str = ""
    where: str = ""
    """The file and line, the rank and the node."""
    why_final: str = ""


def account(status: Status) -> Account:
    """Of the latest attempt, if the run has failed; else an empty one."""
    if status.state not in FAILED:
        return Account()
    attempt, end = status.journal.attempt, status.journal.ended or {}
    failed = failure(status.folder, attempt.number) if attempt is not None else None
    if not end:
        return Account(_error_without_end(status, failed), where(failed), "")
    cause, reason = text(end.get("cause")), text(end.get("reason"))
    place = where(failed) or rank_and_node(as_int(end.get("rank")), text(end.get("node")))
    error, how = said_last(_error(cause, text(end.get("error")), status))
    return Account(error, ", ".join(filter(None, (how, place))), not_restarted(cause, reason))


def said_last(error: str) -> tuple[str, str]:
    """The last line of a command that failed, and how that ended; of another error all of it, and ""."""
    match = _OF_COMMAND.fullmatch(error)
    return (match["said"], match["how"]) if match else (error, "")


def headline(status: Status) -> str | None:
    """The error of a run that failed, by its journal alone; of another run the detail of its state."""
    end = status.journal.ended
    if status.state not in FAILED or end is None:
        return status.detail
    return said_last(_error(text(end.get("cause")), text(end.get("error")), status))[0]


def _error(cause: str | None, error: str | None, status: Status) -> str:
    if error is None:
        return cause or status.detail or ""
    is_known = cause is None or cause in _DEFAULT or cause.lower() in error.lower()
    return error if is_known else f"{cause}: {error}"


def _error_without_end(status: Status, failed: Failure | None) -> str:
    """A run without a verdict is lost, or Slurm tells why it ended: that is the status's detail."""
    told = failed.error or failed.outcome if failed is not None else ""
    return "; ".join(filter(None, (told, status.detail)))


def where(failed: Failure | None) -> str:
    """`train.py:3 in prepare, rank 0 on node1`; "" where nothing is known."""
    if failed is None:
        return ""
    parts = (_line_of(failed.traceback or ""), rank_and_node(failed.rank, failed.node))
    return ", ".join(filter(None, parts))


def rank_and_node(rank: int | None, node: str | None) -> str:
    """`rank 0 on node1`."""
    return " ".join(filter(None, ("" if rank is None else f"rank {rank}", f"on {node}" if node else "")))


def _line_of(traceback: str) -> str:
    """The innermost line of the traceback that is not a library's; else the innermost."""
    frames = list(_FRAME.finditer(traceback))
    own = [frame for frame in frames if not any(part in frame["file"] for part in _LIBRARIES)]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    name = frame["name"]
    shown = f"{_short(frame['file'])}:{frame['line']}"
    return one_line(f"{shown} in {name}" if name and name != "<module>" else shown)


def _short(file: str) -> str:
    """The path, relative to the working directory where it is below that."""
    here = os.getcwd()
    return os.path.relpath(file, here) if file.startswith(f"{here}/") else file
