"""Logs that say to have a terabyte, and logs that have one: looking at them ends soon, in bounded memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from slurmopt.cli import main
from slurmopt.runs import tail
from slurmopt.runs.tail import Tail

TERABYTE = 1 << 40


@pytest.fixture
def log(make_run: Any) -> Path:
    made = make_run().submitted().attempt(rank_0="").end("user_error", rank=0, error="no luck")
    path: Path = made.folder.rank_log(0, 0)
    return path


def printed(capsys: Any, *words: str) -> str:
    assert main(["logs", *words]) == 0
    return str(capsys.readouterr().out)


def test_a_sparse_log_is_told_as_a_note(log: Path, capsys: Any) -> None:
    log.write_text("hello\n")
    os.truncate(log, TERABYTE)
    with log.open("ab") as file:
        file.write(b"goodbye\n")
    os.truncate(log, 3 * TERABYTE)
    assert printed(capsys) == "hello\n[1024.0 GiB of zero bytes]\ngoodbye\n[2.0 TiB of zero bytes]\n"
    assert printed(capsys, "--rank", "all").splitlines() == [
        "[rank 0] hello",
        "[rank 0] [1024.0 GiB of zero bytes]",
        "[rank 0] goodbye",
        "[rank 0] [2.0 TiB of zero bytes]",
    ]
    assert "goodbye\n  [2.0 TiB of zero bytes]" in printed(capsys, "--errors")


def test_zeros_that_were_written_are_told_too_and_few_are_shown(log: Path, capsys: Any) -> None:
    few, many = "\0" * 4095, "\0" * (5 << 20)
    log.write_text(f"one{few}two{many}three{few}\n{few}")
    shown = f"one{few}two[5.0 MiB of zero bytes]\nthree{few}\n{few}"
    assert printed(capsys) == shown
    log.write_text(f"{many}one\n")
    assert printed(capsys) == "[5.0 MiB of zero bytes]\none\n"


@pytest.mark.parametrize("size", [1, 2, 4096, (1 << 20) - 1, 1 << 20])
def test_where_a_piece_ends_changes_nothing(log: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    text = f"a{chr(0) * 5000}b\0c\n{chr(0) * 4096}"
    log.write_text(text if size > 2 else text[4900:])
    monkeypatch.setattr(tail, "_PIECE", size)
    want = "a[4.9 KiB of zero bytes]\nb\0c\n[4.0 KiB of zero bytes]\n"
    assert "".join(Tail(log, is_own=True).read()) == (want if size > 2 else "\0" * 101 + want[25:])


def test_what_is_added_behind_zeros_follows_them(log: Path) -> None:
    log.write_text("one\0\0")
    shown = Tail(log, is_own=True)
    assert "".join(shown.read()) == "one\0\0"
    os.truncate(log, TERABYTE)
    assert "".join(shown.read()) == "[1024.0 GiB of zero bytes]\n"
    with log.open("a") as file:
        file.write("two\n")
    assert "".join(shown.read()) == "two\n"


def test_of_a_very_large_log_the_end_is_shown_and_where_all_of_it_is(
    log: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "MOST", 1 << 20)
    monkeypatch.setattr(tail, "_END", 1000)
    log.write_text("".join(f"line {number:06d}\n" for number in range(87381)))
    assert printed(capsys).startswith("line 000000\n")
    with log.open("a") as file:
        file.write("the last\n" * 10)
    assert main(["logs"]) == 0
    out, err = capsys.readouterr()
    assert err == f"slurmopt: this log has 1.0 MiB, and these are its last 990 B; all of it: less {log}\n"
    assert out.startswith("line 0873")
    assert out.endswith("the last\n")
    assert len(out) == 990


def test_a_file_system_that_tells_of_no_holes(log: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS before version 4.2 and some others say that all of a file is data; a real file system that does is not here:
    the one call that tells is answered as they answer it."""
    seek = os.lseek

    def lseek(descriptor: int, place: int, how: int) -> int:
        if how == os.SEEK_DATA:
            return place
        return seek(descriptor, 0, os.SEEK_END) if how == os.SEEK_HOLE else seek(descriptor, place, how)

    log.write_text("hello\n")
    os.truncate(log, TERABYTE)
    monkeypatch.setattr(os, "lseek", lseek)
    assert main(["logs"]) == 0
    out, err = capsys.readouterr()
    assert out == "[8.0 MiB of zero bytes]\n"
    assert "this log has 1.0 TiB, and these are its last 8.0 MiB" in err
    assert "[256.0 KiB of zero bytes]" in printed(capsys, "--errors")
