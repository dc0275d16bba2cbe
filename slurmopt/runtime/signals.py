"""USR1 and TERM ask the training to save and stop: they set a flag, and tell the listeners.

Slurm gives a signal that srun forwards to *every* process of the step: USR1 would kill each helper that the training
started (compile workers, loggers, a command that was promised nothing). So USR1 is blocked, which children inherit
even through exec, and one thread waits for it; a USR1 before that thread stands is kept by the kernel and not lost.
Imported first of all, so it imports nothing slow itself.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

_requested = False
_terms = 0
_listeners: list[Callable[[int], None]] = []
_let_go_is_set = False
_mask_before_fork: set[int] = set()


def install(*more: signal.Signals) -> None:
    """Takes USR1 (and `more`, treated alike) and TERM for this process."""
    take_usr1(*more)
    take_term()


def take_usr1(*more: signal.Signals) -> None:
    """Makes USR1 (and `more`) a request to save and stop. Called in the main thread."""
    waited_for = {signal.SIGUSR1, *more}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    for number in waited_for:  # for a thread of some library that was there before the block
        signal.signal(number, _on_signal)
    threading.Thread(target=_wait, args=(waited_for,), name="slurmopt-signals", daemon=True).start()


def take_term() -> None:
    """Makes SIGTERM a request to save and stop; forked children get rid of that again."""
    global _let_go_is_set
    if not _let_go_is_set:
        # A SIGTERM to a child so young that it still has our handler would be dropped: keep it until it has let go.
        os.register_at_fork(before=_hold_term, after_in_parent=_release_term, after_in_child=_let_go)
        _let_go_is_set = True
    signal.signal(signal.SIGTERM, _on_signal)


def listen(listener: Callable[[int], None]) -> None:
    """Calls `listener(signal number)` for every signal from now on, in whichever thread learns of it."""
    _listeners.append(listener)


def requested() -> bool:
    """Whether somebody asked this process to save and stop."""
    return _requested


def request() -> None:
    """Sets the flag as a signal would: the request was found another way."""
    global _requested
    _requested = True


def terms() -> int:
    """How many SIGTERM have come; from the second on there is no time left."""
    return _terms


def _wait(numbers: set[signal.Signals]) -> None:
    while True:
        number = signal.Signals(signal.sigwait(numbers))
        _on_signal(number, None)
        if signal.getsignal(number) is not _on_signal:  # the training has a handler of its own: it runs too
            _thread.interrupt_main(number)


def _on_signal(number: int, frame: FrameType | None) -> None:
    global _terms
    request()
    _terms += number == signal.SIGTERM
    for listener in _listeners:
        listener(number)
    if number == signal.SIGTERM and not _listeners:  # not a rank's own process: a second SIGTERM kills as usual
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _let_go() -> None:
    # A forked helper (a data loader's worker, a pool) must die of TERM as its parent expects.
    _listeners.clear()
    if signal.getsignal(signal.SIGTERM) is _on_signal:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _release_term()


def _hold_term() -> None:
    global _mask_before_fork
    _mask_before_fork = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _release_term() -> None:
    if signal.SIGTERM not in _mask_before_fork:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
