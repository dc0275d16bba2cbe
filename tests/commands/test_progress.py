"""Progress of a checkpoint command: a bar on a terminal, and a notice where there is none."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

CODE = """
import time
from slurmopt.commands.checkpoint.progress import progress

with progress("fetching step 4", 200_000_000) as done:
    done(50_000_000)
    time.sleep(2.1)  # nothing is shown before two seconds
    done(100_000_000)
    time.sleep(0.3)
"""


def test_a_terminal_gets_a_bar_and_how_much_is_done() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen([sys.executable, "-c", CODE], stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while block := _read(ours):
            shown += block
    assert process.returncode == 0
    assert b"fetching step 4" in shown
    assert b"150.0/200.0 MB" in shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # EIO: the process has closed its end
        return b""


def test_without_a_terminal_one_line_says_that_it_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=180, check=True)
    assert [line for line in done.stderr.splitlines() if "fetching step 4" in line] == done.stderr.splitlines() != []
