"""Reads single keys from a terminal, and leaves it as it was: after an error, Ctrl-C, Ctrl-Z and SIGTERM too."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Keys:
    """The keyboard. Without a terminal on standard input, or in the background, no key is ever pressed."""

    def __init__(self) -> None:
        self._terminal = sys.stdin.fileno() if _is_terminal() else None
        self._before = termios.tcgetattr(self._terminal) if self._terminal is not None else None

    @property
    def is_live(self) -> bool:
        """Whether keys can be pressed now."""
        if self._terminal is None:
            return False
        try:
            return os.tcgetpgrp(self._terminal) == os.getpgrp()
        except OSError:  # it is not the terminal that controls this process
            return True

    def pressed(self, seconds: float) -> str:
        """Waits for a key for so long; returns the keys, "" where there was none."""
        if self._terminal is None or not self.is_live:
            time.sleep(seconds)
            return ""
        self.enter()
        if not select.select([self._terminal], [], [], seconds)[0] or not self.is_live:
            return ""
        keys = os.read(self._terminal, 64)
        if not keys:  # the terminal is gone
            self._terminal = None
        return keys.decode(errors="replace")

    def enter(self) -> None:
        """Has keys arrive without Enter and unseen; Ctrl-C and Ctrl-Z go on as signals."""
        if self._terminal is not None and self.is_live:
            tty.setcbreak(self._terminal, termios.TCSANOW)

    def leave(self) -> None:
        """Restores the terminal, unless this process is in the background: then it is the shell's."""
        if self._terminal is not None and self._before is not None:
            with contextlib.suppress(termios.error, OSError):
                if self.is_live:
                    termios.tcsetattr(self._terminal, termios.TCSANOW, self._before)


def _is_terminal() -> bool:
    try:
        return sys.stdin.isatty() and sys.stdout.isatty()
    except (AttributeError, ValueError):  # standard input is closed
        return False


@contextlib.contextmanager
def keyboard() -> Iterator[Keys]:
    """Takes single keys in the block."""
    keys = Keys()
    with _restored_at_signals(keys):
        try:
            keys.enter()
            yield keys
        finally:
            keys.leave()


@contextlib.contextmanager
def _restored_at_signals(keys: Keys) -> Iterator[None]:
    """In the block, signals that stop or end this process first restore the terminal."""

    def stop(number: int, frame: FrameType | None) -> None:
        keys.leave()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, stop)  # continued; where it ends the process, nothing follows
        keys.enter()

    if not keys.is_live:
        yield
        return
    taken = [number for number in (*_ENDING, signal.SIGTSTP) if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
