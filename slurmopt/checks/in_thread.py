"""Work in a thread of its own, because a dead disk or driver never returns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_Result = TypeVar("_Result")


class Late(Exception):
    """The work has not ended in time. Its thread is left behind; it keeps no process alive."""


class InThread(Generic[_Result]):
    """Work that has been started, and its outcome. Not concurrent.futures: that imports logging, which a rank without
    torch does without."""

    def __init__(self, name: str, work: Callable[[], _Result]) -> None:
        self._results: list[_Result] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), name=f"slurmopt-check-{name}", daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], _Result]) -> None:
        try:
            self._results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            self._error = error

    def result(self, seconds: float) -> _Result:
        """What the work returned; raises what it raised. Raises Late after `seconds`."""
        self._thread.join(max(0.0, seconds))
        if self._error is not None:
            raise self._error
        if not self._results:
            raise Late
        return self._results[0]


def within(seconds: float, what: Callable[[], _Result]) -> _Result:
    """The result of `what`, which may be a call on a dead file system. Raises TimeoutError, and what it raises."""
    try:
        return InThread("within", what).result(seconds)
    except Late:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
