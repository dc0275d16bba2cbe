"""A folder whose journal is not a file is a run that somebody has spoilt: it is named, with what is wrong."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmopt.cli import main


def a_socket(path: Path) -> None:
    descriptor = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{descriptor}/{path.name}")
    os.close(descriptor)


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "fifo": (os.mkfifo, "a FIFO, not a regular file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "a device, not a regular file"),
    "folder": (Path.mkdir, "a folder, not a regular file"),
    "socket": (a_socket, "a socket, not a regular file"),
    "link to nothing": (lambda path: path.symlink_to("nothing"), "a broken link"),
    "link to itself": (lambda path: path.symlink_to(path.name), "a link to itself"),
}


@pytest.mark.parametrize(("put", "what"), WRONG.values(), ids=list(WRONG))
def test_it_is_named_with_what_is_wrong(make_run: Any, capsys: Any, put: Callable[[Path], Any], what: str) -> None:
    run = make_run("spoilt", "1").folder
    run.events.unlink()
    put(run.events)
    for words in (["status"], ["status", "spoilt"], ["status", "--all"], ["status", str(run.path)]):
        assert main(words) == 0
        out = capsys.readouterr().out
        assert f"cannot read events.jsonl: it is {what}" in out
        assert f"squeue --me -o '%i %o'  # your job whose script is {run.script}\n" in out
    assert main(["list"]) == 0
    assert what in capsys.readouterr().out
    main(["history", "spoilt"])
    assert what in "".join(capsys.readouterr())
    assert main(["logs", "spoilt"]) == 2
    assert what in capsys.readouterr().err


def test_it_hides_no_other(make_run: Any, capsys: Any) -> None:
    run = make_run("spoilt", "1").folder
    run.events.unlink()
    os.mkfifo(run.events)
    make_run("good", "2").submitted()
    assert main(["status"]) == 0
    assert capsys.readouterr().out.startswith("good/2: pending\n")
    assert main(["status", "--all"]) == 0
    out = capsys.readouterr().out
    assert "good/2" in out
    assert "spoilt/1" in out
