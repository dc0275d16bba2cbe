"""Turns the error that ended a task into an outcome: user error, infrastructure, or a request to be requeued."""

from __future__ import annotations

import errno
import time
import traceback
from types import TracebackType

from slurmopt.errors import JobError, Pruned, RanksLost, RendezvousError, Requeue, StorageBroken, StorageError, one_line
from slurmopt.job.facts.full_disk import is_full, is_shared, places
from slurmopt.run_folder.outcome import FINISHED, INFRASTRUCTURE, KILLED, REQUEUE, USER_ERROR, Outcome

_INFRASTRUCTURE_TYPES = {"DistBackendError", "DistNetworkError", "DistStoreError"}
_INFRASTRUCTURE_ERRNOS = {
    errno.ESTALE,
    errno.EIO,
    errno.ENOTCONN,
    errno.EREMOTEIO,
    errno.ESHUTDOWN,
    errno.EMFILE,
    errno.ENFILE,
}
_INFRASTRUCTURE_WORDS = (
    "uncorrectable ecc",
    "uncorrectable nvlink",
    "fallen off the bus",
    "devices unavailable",
    "devices is/are busy or unavailable",
    "device(s) is/are busy or unavailable",
    "system not yet initialized",
    "no cuda-capable device is detected",
    "nvrm: xid",
    "too many open files",
)
_PEER_LOST_WORDS = (
    "the other ranks did not come",  # RanksLost
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "connection aborted",
    "connection timed out",  # this and the next: a node without power sends no FIN
    "no route to host",
    "host is unreachable",
    "network is unreachable",
    "broken pipe",
    "socket closed",
    "remote process exited",
    "ncclremoteerror",
    "timed out waiting",
    "watchdog caught collective operation timeout",
)
_USER_WORDS = ("ncclinvalidusage", "ncclinvalidargument", "duplicate gpu detected")
"""Texts of a DistBackendError that would occur on any node."""


def finished(result: object = None) -> Outcome:
    return Outcome(FINISHED, time.time(), 0, result=result)


def requeue(message: str | None = None) -> Outcome:
    return Outcome(REQUEUE, time.time(), 75, error=message or None)


POLITE = "it ended without an error after a signal, so its work may not be complete (restart.exit_after_signal)"


def left(how: str = POLITE, exit_code: int = 0) -> Outcome:
    """The outcome of a task that ended without an error after it had been told to stop."""
    return Outcome(REQUEUE, time.time(), exit_code, error=how, by_signal=True)


def killed(signal_number: int, message: str) -> Outcome:
    return Outcome(KILLED, time.time(), 128 + signal_number, error=message)


def user_error(message: str, exit_code: int = 1, trace: str | None = None) -> Outcome:
    return Outcome(USER_ERROR, time.time(), exit_code, error=one_line(message), traceback=trace)


def outcome_of(error: BaseException) -> Outcome:
    """The outcome of a function that raised."""
    if isinstance(error, Requeue):
        return requeue(one_line(str(error)))
    if isinstance(error, Pruned):
        return Outcome(FINISHED, time.time(), 0, pruned=True)
    if isinstance(error, SystemExit):
        return _of_exit(error)
    if isinstance(error, KeyboardInterrupt):
        return killed(2, "SIGINT")
    if is_full(error) and isinstance(error, (OSError, RuntimeError, StorageError)):
        return _of_full_disk(error)
    if is_infrastructure(error):
        return Outcome(INFRASTRUCTURE, time.time(), 69, error=headline(error), traceback=story(error))
    return user_error(headline(error), trace=story(error))


def _of_full_disk(error: BaseException) -> Outcome:
    """Infrastructure: other users may free space. The outcome names the disk, which most such errors do not."""
    full = places(error)
    line = headline(error)
    unnamed = [place for place in full if place not in line]
    return Outcome(
        INFRASTRUCTURE,
        time.time(),
        69,
        error=f"{line}: {', '.join(unnamed)}" if unnamed else line,
        traceback=story(error),
        nodes=None if full and not is_shared(full) else [],
    )


def _of_exit(error: SystemExit) -> Outcome:
    code = error.code
    if code is None or code == 0:
        return finished()
    if code == 75:
        return requeue("exit status 75")
    if isinstance(code, int):
        return user_error(f"exit status {code}", exit_code=code & 0xFF or 1)
    return user_error(str(code))


def is_infrastructure(error: BaseException) -> bool:
    """Whether another node, or the same one later, might not raise this."""
    text = str(error).lower()
    if any(word in text for word in _USER_WORDS):
        return False
    if isinstance(error, (RendezvousError, RanksLost, StorageBroken)):
        return True
    if _INFRASTRUCTURE_TYPES & {kind.__name__ for kind in type(error).__mro__}:
        return True
    if isinstance(error, OSError) and error.errno in _INFRASTRUCTURE_ERRNOS:
        return True
    words = _INFRASTRUCTURE_WORDS + _PEER_LOST_WORDS if isinstance(error, RuntimeError) else ()
    return any(word in text for word in words)


def is_peer_lost(text: str | None) -> bool:
    """Whether an error only says that another rank is gone: a symptom, not the cause."""
    lower = (text or "").lower()
    return any(word in lower for word in _PEER_LOST_WORDS)


def headline(error: BaseException) -> str:
    """The error in one line."""
    if isinstance(error, JobError):
        return one_line(str(error))
    lines = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()
    # A message of several lines begins with what happened; of a SyntaxError the place comes first.
    return one_line(lines[-1 if isinstance(error, SyntaxError) else 0])


def story(error: BaseException) -> str:
    """The traceback from the user's first frame on; of a JobError its message, after its cause."""
    if not isinstance(error, JobError):
        return "".join(traceback.format_exception(type(error), error, _users_frames(error.__traceback__)))
    cause = "" if error.__cause__ is None else story(error.__cause__)
    return f"{cause}{headline(error)}\n"


def _users_frames(trace: TracebackType | None) -> TracebackType | None:
    rest = trace
    while rest is not None and _is_ours(rest):
        rest = rest.tb_next
    return rest or trace


def _is_ours(trace: TracebackType) -> bool:
    module = str(trace.tb_frame.f_globals.get("__name__", ""))
    return module.startswith(("slurmopt.job", "importlib"))
