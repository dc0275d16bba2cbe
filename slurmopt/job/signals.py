"""Handles USR1 and TERM, which ask the training to save and stop: sets a flag and calls the listeners.

Slurm gives a signal that srun forwards to *every* process of the step: USR1 would kill each helper that the training
started (compile workers, loggers, a command that was promised nothing). So USR1 is blocked, which children inherit
even through exec, and a thread waits for it; a USR1 before that thread stands is kept by the kernel and not lost.
TERM must go on ending children, so it is not blocked: Python's own handler writes it to a pipe at once, although the
handler's Python code waits until the main thread comes out of C. The kernel tells the same thread by SIGIO, which only
this thread blocks, that there is something to read. Where asyncio has taken that pipe away, TERM is heard when the
handler's Python code runs.
USR1 has no Python handler of ours, unless other threads were there before the block: a framework that leaves a taken
signal alone, as Lightning does, finds it free and installs its own, which the thread that waits for USR1 has run.
Imported first of all, so it imports nothing slow itself.
"""

from __future__ import annotations

import _thread
import contextlib
import fcntl
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType

_MARK = b"\0"
"""A byte that is no signal number."""
BURST = 1.0
"""Seconds. Slurm ends a job by TERM, CONT, TERM: signals within this time count as one request."""

_asked: str | None = None
_asked_at = 0.0
_terms = 0
_later = 0
_told = False
_heard = threading.Event()
_caught_up = threading.Event()
_taken_by = 0
"""The process that has taken signals; a forked process has not."""
_listeners: list[Callable[[int], None]] = []
_arrived: list[int] = []
_let_go_is_set = False
_mask_before_fork: set[int] = set()
_wakeup: socket.socket | None = None
_F_SETOWN_EX = 15
"""Of fcntl: whom the kernel tells of input; Python has no name for it."""
_F_OWNER_TID = 0


def install(*more: signal.Signals) -> None:
    """Takes USR1, `more`, and TERM for this process."""
    take(signal.SIGUSR1, *more, signal.SIGTERM)


def take(*numbers: signal.Signals) -> None:
    """Makes these signals a request to save and stop: TERM, and others, all treated as USR1. Called once in a process,
    in the main thread; a second call changes nothing."""
    global _taken_by
    if _taken_by == os.getpid():
        return
    _taken_by = os.getpid()
    waited_for = {number for number in numbers if number != signal.SIGTERM}
    _block(waited_for)
    reader = _take_term() if signal.SIGTERM in numbers else None
    threading.Thread(target=_hear, args=(waited_for, reader), name="slurmopt-signals", daemon=True).start()


def start_afresh() -> None:
    """Resets the state in a forked child that becomes a rank: it has got no request, and its threads are gone.
    `take` or `install` follows."""
    global _asked, _asked_at, _terms, _later, _told, _heard, _caught_up, _wakeup
    _asked, _asked_at, _terms, _later, _told = None, 0.0, 0, 0, False
    _heard, _caught_up, _wakeup = threading.Event(), threading.Event(), None
    _listeners.clear()
    _arrived.clear()


def _block(numbers: Iterable[signal.Signals]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    alone = len(os.listdir("/proc/self/task")) == 1
    for number in numbers:  # a thread of some library that was there before the block would die of it
        signal.signal(number, signal.SIG_DFL if alone else _on_signal)


def _take_term() -> socket.socket:
    """Sets the handler of SIGTERM, but not in forked children, and returns where to read which signals came."""
    global _let_go_is_set, _wakeup
    if not _let_go_is_set:
        # A SIGTERM to a child so young that it still has our handler would be dropped: keep it until it has let go.
        os.register_at_fork(before=_hold_term, after_in_parent=_release_term, after_in_child=_let_go)
        _let_go_is_set = True
    reader, _wakeup = socket.socketpair()
    reader.setblocking(False)
    _wakeup.setblocking(False)
    signal.set_wakeup_fd(_wakeup.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, _on_term)
    return reader


def listen(listener: Callable[[int], None]) -> None:
    """Calls `listener(signal number)` for every signal from now on, in the thread that receives it."""
    _listeners.append(listener)


def arrived() -> list[int]:
    """The signals that have arrived so far, each once. One that arrives during a call of `listen` before this one may
    be among them and be heard by the listener."""
    return list(_arrived)


def requested() -> bool:
    """Whether this process was asked to save and stop."""
    return _asked is not None


def asked() -> str | None:
    """Who asked first: USR1, TERM, "file" (the batch shell's), "rank" (another rank's word)."""
    return _asked


def told() -> bool:
    """Whether the training itself can know that it is to stop. SIGTERM reaches all of its processes; of other requests
    it learns by asking (`tell`), by its own handler, or by a forwarded signal."""
    return _terms > 0 or _told


def tell() -> None:
    """Notes that the training has been told to stop."""
    global _told
    _told = True


def catch_up() -> None:
    """Returns once every SIGTERM that has arrived is counted: a process that ends because of one may be quicker than
    the thread that receives it."""
    if _wakeup is None:
        return
    _caught_up.clear()
    with contextlib.suppress(OSError):  # full: then there is enough to read
        _wakeup.send(_MARK)
    _caught_up.wait(BURST)


def request(who: str) -> None:
    """Sets the flag as a signal would, for a request that came another way."""
    global _asked, _asked_at, _later
    if _asked is None:
        _asked, _asked_at = who, time.monotonic()
    elif who in ("USR1", "TERM") and time.monotonic() - _asked_at > BURST:
        _later += 1
    _heard.set()


def wait(timeout: float) -> bool:
    """Waits for a request at most `timeout` seconds. Returns whether there is one."""
    return _heard.wait(timeout)


def terms() -> int:
    """How many SIGTERMs have arrived."""
    return _terms


def pressed() -> bool:
    """Whether another signal followed the first one after a while: only what is done at once will be done."""
    return _later > 0


def _hear(numbers: set[signal.Signals], reader: socket.socket | None) -> None:
    """The thread: waits for signals, and for SIGIO, by which the kernel tells of input at `reader`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    if reader is not None:
        _tell_this_thread_of_input(reader)
        _read(reader)  # what came before
    while True:
        number = signal.Signals(signal.sigwait({*numbers, signal.SIGIO}))
        if number != signal.SIGIO:
            _on_signal(number, None)
            if _is_the_trainings(number):  # its own handler runs too
                tell()
                _thread.interrupt_main(number)
        elif reader is not None:
            _read(reader)


def _tell_this_thread_of_input(reader: socket.socket) -> None:
    owner = struct.pack("ii", _F_OWNER_TID, threading.get_native_id())
    fcntl.fcntl(reader, _F_SETOWN_EX, owner)  # no other thread gets SIGIO, which would end the process
    fcntl.fcntl(reader, fcntl.F_SETFL, fcntl.fcntl(reader, fcntl.F_GETFL) | os.O_ASYNC)


def _read(reader: socket.socket) -> None:
    """Reads what Python's C handlers write: one byte for each signal. The training's own handler may have replaced
    ours."""
    while data := _input(reader):
        for number in data:
            if number == signal.SIGTERM:
                _on_signal(number, None)
        if _MARK in data:
            _caught_up.set()


def _input(reader: socket.socket) -> bytes:
    try:
        return reader.recv(64)
    except OSError:  # no more; or a training has closed all that it found open
        return b""


def _is_the_trainings(number: signal.Signals) -> bool:
    return signal.getsignal(number) not in (_on_signal, signal.SIG_DFL, signal.SIG_IGN, None)


def _on_term(number: int, frame: FrameType | None) -> None:
    """The thread that reads the pipe has received it already, unless the program replaced the pipe."""
    assert _wakeup is not None
    before = signal.set_wakeup_fd(_wakeup.fileno(), warn_on_full_buffer=False)
    if before != _wakeup.fileno():
        signal.set_wakeup_fd(before)
        _on_signal(number, frame)


def _on_signal(number: int, frame: FrameType | None) -> None:
    global _terms
    request("TERM" if number == signal.SIGTERM else "USR1")
    _terms += number == signal.SIGTERM
    if number not in _arrived:
        _arrived.append(number)
    for listener in _listeners:
        listener(number)


def _let_go() -> None:
    # A forked helper (a data loader's worker, a pool) must die of TERM as its parent expects.
    _listeners.clear()
    if signal.getsignal(signal.SIGTERM) is _on_term:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _release_term()


def _hold_term() -> None:
    global _mask_before_fork
    _mask_before_fork = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _release_term() -> None:
    if signal.SIGTERM not in _mask_before_fork:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
