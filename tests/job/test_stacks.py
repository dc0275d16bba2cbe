"""A rank that is ready to write its stacks lives like any other process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slurmopt.job.watchdog import stacks

READY = """
import faulthandler, os, signal, sys, time
from pathlib import Path
from slurmopt.job.watchdog.stacks import Stacks
stacks = Stacks(Path("request"), {hang_after}, {heartbeat})
stacks.wind()
"""


def started(code: str, folder: Path, hang_after: str = "None", heartbeat: float = 10.0) -> subprocess.Popen[str]:
    """A process that gets ready and then runs `code`."""
    text = READY.format(hang_after=hang_after, heartbeat=heartbeat) + code
    return subprocess.Popen([sys.executable, "-c", text], cwd=folder, stderr=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    """What it wrote; it has to end well."""
    errors = process.communicate(timeout=180)[1]
    assert process.returncode == 0, errors
    return errors


def test_its_forked_children_end_as_they_should(tmp_path: Path) -> None:
    said(started("signal.alarm(30)\nif os.fork() == 0:\n    sys.exit(0)\nassert os.wait()[1] == 0\n", tmp_path))


def test_the_trainings_own_timer_stands(tmp_path: Path) -> None:
    code = "faulthandler.dump_traceback_later(0.05)\nstacks.wind()\ndef mine():\n    time.sleep(2)\nmine()\n"
    text = said(started(code, tmp_path))
    assert "Timeout (0:00:00" in text
    assert "in mine" in text


def test_what_winds_its_timer_writes_nothing_and_what_does_not_writes_its_stacks(tmp_path: Path) -> None:
    code = "def held():\n    end = time.monotonic() + 4\n    while time.monotonic() < end:\n        time.sleep(0.01)"
    winds, does_not = (started(f"{code}{more}\nheld()\n", tmp_path, "1", 1.0) for more in ("; stacks.wind()", ""))
    assert said(winds) == ""
    assert "in held" in said(does_not)


def test_its_exit_may_take_longer_than_its_timer(tmp_path: Path) -> None:
    """The signal's handler goes early in the interpreter's exit; the signal would kill from then on."""
    code = "class Late:\n    def __del__(self, sleep=time.sleep):\n        sleep(4)\nsys.modules['late'] = Late()\n"
    assert said(started(code, tmp_path, "1", 1.0)) == ""


def test_switched_off_it_never_does(tmp_path: Path) -> None:
    assert said(started("time.sleep(0.1)\n", tmp_path, "float('inf')")) == ""


def test_a_request_is_answered_once_and_another_one_again(tmp_path: Path) -> None:
    code = """
request = Path("request")
for text in ("{}", "{}", '{"silent": []}'):
    if not request.exists() or request.read_text() != text:
        request.with_name("new").write_text(text)
        os.replace("new", "request")
    stacks.answer(3, 7, "running")
"""
    text = said(started("stacks.answer(3, None, 'starting')\n" + code, tmp_path))
    assert text.count("slurmopt: stacks of rank 3, step 7, phase running\n") == 2
    assert "starting" not in text


@pytest.mark.parametrize(("word", "seconds"), [("auto", None), ("off", float("inf")), ("90", 90.0), ("0.5", 0.5)])
def test_the_word_for_how_long(word: str, seconds: float | None) -> None:
    assert stacks.hang_after(word) == seconds
