"""What another user wrote is shown, and does nothing to the terminal of whoever looks at it."""

from __future__ import annotations

import json
import os
import pwd
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from slurmopt.cli import main
from slurmopt.run_folder.outcome import Outcome

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: giving files to another user needs root")

NASTY = "\x1b]0;title\x07\x1b[2J\x9b31m\x08\x7f\u202e"
"""A title, a cleared screen, a colour by one byte, a step back, and text from right to left."""
SHOWN = "\\x1b]0;title\\x07\\x1b[2J\\x9b31m\\x08\\x7f\\u202e"
LOOKS = (
    ["logs"],
    ["logs", "--rank", "all"],
    ["logs", "--follow"],
    ["logs", "--errors"],
    ["logs", "--attempt", "0"],
    ["status"],
    ["status", "--all"],
    ["status", "--json"],
    ["list"],
    ["list", "--json"],
    ["history"],
    ["history", "--json"],
    ["checkpoint", "list"],
    ["checkpoint", "verify"],
    ["checkpoint", "show"],
    ["retry"],
    ["cancel"],
    ["tend", "--dry-run"],
)


def give_away(folder: Path) -> None:
    """All of it belongs to another user."""
    stranger = pwd.getpwnam("nobody")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, stranger.pw_uid, stranger.pw_gid, follow_symlinks=False)


def is_harmless(text: str) -> bool:
    return all(char.isprintable() or char in "\n\t" for char in text)


def failed_run(make_run: Any, name: str = f"name{NASTY}") -> Path:
    """A run that failed, with control characters wherever its owner can put a text."""
    made = make_run(name).submitted(host=NASTY).attempt(rank_0=f"50%\r100%\r\n{NASTY} log\n", rank_1=f"{NASTY} one\n")
    trace = f"Traceback (most recent call last):\n\t{NASTY}\nValueError: {NASTY}\n"
    told = Outcome("user error", time.time(), 1, NASTY, trace).as_dict()
    made.beat(rank=0, outcome={**told, "node": NASTY}, phase=NASTY, awaits=NASTY, step=3, metrics={NASTY: 1.0})
    made.event("checkpoint-failed", step=1, tier=NASTY, reason=NASTY).event("node-excluded", nodes=[NASTY])
    made.event("retry", changes={f"a{NASTY}": [NASTY, NASTY]}).event("notify-failed", how=NASTY, reason=NASTY)
    made.event("checkpoint-damaged", checkpoint=f"step-1/{NASTY}", tier="shared", reason=NASTY)
    made.event("hang", attempt=0, rank=0, node=NASTY, step=1, seconds=3)
    made.end("user error", rank=0, error=NASTY, node=NASTY, cause=NASTY, reason=NASTY, by=NASTY)
    made.folder.job_log("7").write_text(f"{NASTY} job\n")
    made.folder.config.write_text(json.dumps({"checkpoint": {"every": f"${{{NASTY}}}"}}))
    folder: Path = made.folder.path
    return folder


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_strangers_run_does_nothing_to_the_terminal(make_run: Any, capsys: Any, words: list[str]) -> None:
    give_away(failed_run(make_run))
    main(words)
    seen = capsys.readouterr()
    assert is_harmless(seen.out), repr(seen.out)
    assert is_harmless(seen.err), repr(seen.err)


def test_the_text_of_a_strangers_logs_stays_readable(make_run: Any, capsys: Any) -> None:
    give_away(failed_run(make_run, "theirs"))
    assert main(["logs"]) == 0
    assert capsys.readouterr().out == f"50%\n100%\n{SHOWN} log\n"
    assert main(["logs", "--rank", "all"]) == 0
    assert capsys.readouterr().out == f"[rank 0] 50%\n[rank 0] 100%\n[rank 0] {SHOWN} log\n[rank 1] {SHOWN} one\n"
    assert main(["logs", "--errors"]) == 0
    told = capsys.readouterr().out
    assert f"\n\t{SHOWN}\nValueError: {SHOWN}\n" in told
    assert f"{SHOWN} job" in told


def test_ones_own_logs_are_shown_as_they_are(make_run: Any, capsys: Any) -> None:
    failed_run(make_run, "mine")
    assert main(["logs"]) == 0
    assert capsys.readouterr().out == f"50%\r100%\r\n{NASTY} log\n"


def test_a_log_that_somebody_else_put_into_ones_own_run(make_run: Any, capsys: Any) -> None:
    folder = failed_run(make_run, "mine")
    give_away(folder / "logs" / "attempt-0" / "rank-0.log")
    assert main(["logs"]) == 0
    assert capsys.readouterr().out == f"50%\n100%\n{SHOWN} log\n"


def test_following_a_strangers_run_while_it_writes(make_run: Any, capsys: Any) -> None:
    made = make_run("theirs").submitted().attempt(rank_0="").beat()
    give_away(made.folder.path)
    following = threading.Thread(target=main, args=(["logs", "--follow"],), daemon=True)
    following.start()
    out, deadline = "", time.monotonic() + 20
    for written, shown in (("10%\r", "10%"), ("20%\n\x1b[2J", "\n20%\n\\x1b[2J"), ("\xff\n", "\n")):
        with made.folder.rank_log(0, 0).open("a") as log:
            log.write(written)
        while shown not in out:
            assert time.monotonic() < deadline, repr(out)
            time.sleep(0.02)
            out += capsys.readouterr().out
    made.end("finished")
    following.join(20)
    assert is_harmless(out), repr(out)
