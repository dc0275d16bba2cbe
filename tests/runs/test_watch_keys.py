"""`slurmopt status --watch` on a real terminal: the key q, curves, and the terminal as it was afterwards."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from typing import Any

import pytest

from slurmopt.runs.status.curve import Curves
from slurmopt.runs.status.progress import Progress

PATIENCE = 30.0


class Terminal:
    """A terminal on which `slurmopt status --watch` runs as the foreground job."""

    def __init__(self, *words: str) -> None:
        self.parent, self.child = pty.openpty()
        self.before = termios.tcgetattr(self.child)
        self.shown = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, *words],
            stdin=self.child,
            stdout=self.child,
            stderr=self.child,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        )

    def send(self, number: int) -> None:
        """Sends a signal to the command."""
        os.kill(int(self.shown.partition("<")[2].partition(">")[0]), number)

    def press(self, keys: bytes) -> None:
        os.write(self.parent, keys)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if select.select([self.parent], [], [], 0.1)[0]:
                self.shown += os.read(self.parent, 65536).decode(errors="replace")

    def wait_for_mode(self, canonical: bool) -> None:
        deadline = time.monotonic() + PATIENCE
        while bool(termios.tcgetattr(self.child)[3] & termios.ICANON) != canonical:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def is_restored(self) -> bool:
        return termios.tcgetattr(self.child) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            self.send(signal.SIGKILL)
            self.process.wait(PATIENCE)
        os.close(self.parent)
        os.close(self.child)


START = """
import fcntl, os, signal, sys, termios

def run():
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    from slurmopt.cli import main
    sys.exit(main(sys.argv[1:]))

fcntl.ioctl(0, termios.TIOCSCTTY, 0)
if (pid := os.fork()) == 0:
    run()
print(f"<{pid}>", flush=True)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
while os.WIFSTOPPED(status := os.waitpid(pid, os.WUNTRACED)[1]):
    os.tcsetpgrp(0, os.getpgrp())
    print("STOPPED", flush=True)
    input()
    os.tcsetpgrp(0, pid)
    os.kill(pid, signal.SIGCONT)
code = os.waitstatus_to_exitcode(status)
sys.exit(code if code >= 0 else 100 - code)
"""
"""A shell with one job, which it continues after a line."""


@pytest.fixture
def watched(make_run) -> Iterator[tuple[Any, Terminal]]:
    """A running run and a terminal that watches it."""
    made = make_run().submitted("local-1", backend="local", host="elsewhere", pid=1, pid_started=1)
    made.attempt(job="local-1").beat(step=1, total_steps=9, metrics={"loss": 2.0})
    terminal = Terminal("status", "--watch")
    terminal.wait_for("q ends this view")
    terminal.wait_for_mode(canonical=False)
    yield made, terminal
    terminal.close()


def test_q_ends_it_and_restores_the_terminal(watched) -> None:
    _, terminal = watched
    assert not terminal.is_restored()
    terminal.press(b"x")
    terminal.press(b"q")
    assert terminal.process.wait(PATIENCE) == 0
    assert terminal.is_restored()


def test_the_metric_becomes_a_curve(watched) -> None:
    made, terminal = watched
    for step, loss in ((2, 1.0), (3, 0.5)):
        made.beat(step=step, total_steps=9, metrics={"loss": loss})
        terminal.wait_for(f"2 → {loss:.4g}")
    assert "loss  █▃▁  2 → 0.5" in terminal.shown


@pytest.mark.parametrize(
    ("keys", "number", "status"),
    [
        (b"\x03", None, 130),
        (b"", signal.SIGTERM, 100 + signal.SIGTERM),
        (b"", signal.SIGHUP, 100 + signal.SIGHUP),
        (b"\x1c", None, 100 + signal.SIGQUIT),
    ],
    ids=["Ctrl-C", "SIGTERM", "SIGHUP", "Ctrl-backslash"],
)
def test_other_ends_restore_it_too(watched, keys, number, status) -> None:
    _, terminal = watched
    if keys:
        terminal.press(keys)
    else:
        terminal.send(number)
    assert terminal.process.wait(PATIENCE) == status
    assert terminal.is_restored()


def test_ctrl_z_restores_it_until_it_is_continued(watched) -> None:
    _, terminal = watched
    terminal.press(b"\x1a")
    terminal.wait_for("STOPPED")
    assert terminal.is_restored()
    terminal.press(b"\n")
    terminal.wait_for_mode(canonical=False)
    terminal.press(b"q")
    assert terminal.process.wait(PATIENCE) == 0
    assert terminal.is_restored()


def test_without_a_terminal_on_stdin_there_are_no_keys(make_run) -> None:
    made = make_run().submitted().attempt().beat(step=1).end("finished")
    done = subprocess.run(
        [sys.executable, "-m", "slurmopt", "status", "--watch", str(made.folder.path)],
        input="q",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert "finished" in done.stdout
    assert "\x1b" not in done.stdout


def test_curves_of_odd_values() -> None:
    curves = Curves()
    curves.take(Progress())
    for step, loss in enumerate([1.0, float("nan"), float("inf"), -1e308, 1e308]):
        curves.take(Progress(step=step, metrics={"loss\x1b[2J": loss}))
    (line,) = curves.lines(80)
    assert "\x1b" not in line
    assert "!!" in line
    assert len(line) <= 80
    assert len(curves.lines(10)[0]) <= 10


def test_curves_begin_before_the_watch() -> None:
    curves = Curves()
    curves.take(Progress(step=900, metrics={"loss": 0.25}, history={"loss": [4.0, 2.0, 1.0, 0.5]}))
    (line,) = curves.lines(80)
    assert line.endswith("4 → 0.25")
