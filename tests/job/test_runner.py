"""What the local backend does where the batch shell cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from job.harness import alive, wait_for

from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder

SCRIPT = """cd "$(dirname "$0")"
mkdir logs/attempt-0
setsid bash -c 'echo $$ > child; kill -STOP $$; sleep 1000' &
until [ -s child ]; do sleep 0.05; done
{end}
"""


def attempt(tmp_path: Path, end: str) -> tuple[RunFolder, list[dict[str, object]]]:
    """One attempt of a script whose child went to a session of its own and does not run; it is gone afterwards."""
    folder = RunFolder(tmp_path / "runs" / "test" / "one")
    folder.make()
    folder.overrides.touch()
    folder.script.write_text(SCRIPT.format(end=end))
    subprocess.run([sys.executable, "-m", "slurmopt.backends.runner", str(folder.path)], timeout=60)
    child = int(wait_for(lambda: (folder.path / "child").read_text(), "the child's id"))
    assert not alive(child)
    return folder, events.read(folder.events)


def test_nothing_of_an_attempt_outlives_it(tmp_path: Path) -> None:
    assert attempt(tmp_path, "exit 1")[1] == []


def test_a_batch_shell_that_was_killed_gets_an_end_with_its_cause(tmp_path: Path) -> None:
    (end,) = attempt(tmp_path, "kill -KILL $$")[1]
    assert (end["event"], end["attempt"], end["outcome"]) == ("end", 0, "killed")
    assert (end["cause"], end["next"]) == ("killed", None)
    assert "SIGKILL" in str(end["reason"])


def test_a_verdict_that_was_given_stands(tmp_path: Path) -> None:
    line = '{"time": 1, "event": "end", "attempt": 0, "cause": "user error", "next": null}'
    start = '{"time": 0, "event": "attempt", "attempt": 0}'
    ends = attempt(tmp_path, f"echo '{start}' > events.jsonl; echo '{line}' >> events.jsonl; kill -KILL $$")[1]
    assert [event.get("cause") for event in ends] == [None, "user error"]
