"""Journals that are too long to be held in memory: what counts is found, and memory stays small."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from chaos_runs.looks.looker import Looker, Seen

SIZE, MIB = 80 << 20, 130
"""Bytes of a journal, and what a command may take: less than the journal has."""


@pytest.fixture(scope="module")
def looker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looker]:
    """Where no Slurm is to be found."""
    cache = str(tmp_path_factory.mktemp("cache"))
    with Looker({**os.environ, "PATH": "/nowhere", "XDG_CACHE_HOME": cache}) as made:
        yield made


def checkpoint(number: int) -> dict[str, Any]:
    tier, step = ("scratch", "shared")[number % 2], number // 2
    name = f"step-{step:08d}/a0000-00000001"
    told = {"time": 1.7e9 + number, "event": "checkpoint", "attempt": 0, "step": step, "tier": tier}
    return {**told, "checkpoint": name, "bytes": 123456789, "seconds": 12.345}


def grow(path: Path, line: Callable[[int], object]) -> int:
    """Appends lines until the file has its size; how many."""
    count, step = 0, 1000
    with path.open("ab") as file:
        while file.tell() < SIZE:
            text = (json.dumps(line(number)) for number in range(count, count + step))
            file.write("".join(f"{one}\n" for one in text).encode())
            count += step
    return count


def look(looker: Looker, cwd: Path, *words: str, mib: float = MIB) -> Seen:
    seen = looker.look(words, cwd, seconds=120)
    assert not seen.wrong(seconds=120, mib=mib), seen.wrong(seconds=120, mib=mib)
    return seen


def test_a_run_that_has_saved_a_million_times(make_run: Any, looker: Looker, tmp_path: Path) -> None:
    made = make_run().submitted().attempt()
    count = grow(made.folder.events, checkpoint)
    made.event("checkpoint-failed", attempt=0, step=9, tier="s3", checkpoint="x", reason="no space")
    made.end("user_error", rank=0, error="no luck", next=None, step=count)
    (shown,) = data_of(look(looker, tmp_path, "status", "--json").out)
    assert shown["state"] == "failed"
    assert shown["checkpoints"]["shared"]["step"] == shown["checkpoints"]["scratch"]["step"] == count // 2 - 1
    assert shown["checkpoint_failures"][0]["reason"] == "no space"
    (attempt,) = data_of(look(looker, tmp_path, "history", "--json").out)["attempts"]
    assert attempt["durable"] == count // 2 - 1
    assert data_of(look(looker, tmp_path, "list", "--json").out)[0]["state"] == "failed"


def test_a_journal_that_tells_too_much_is_said_to(make_run: Any, looker: Looker, tmp_path: Path) -> None:
    grow(make_run().folder.events, lambda number: {"event": "signal", "attempt": 0, "signal": "x" * 1000})
    (shown,) = data_of(look(looker, tmp_path, "status", "--json").out)
    assert (shown["state"], shown["detail"]) == (
        "unknown",
        "cannot read events.jsonl: its events have more than 64 MiB",
    )
    assert "more than 64 MiB" in look(looker, tmp_path, "history", mib=400).err


def test_one_line_without_an_end(make_run: Any, looker: Looker, tmp_path: Path) -> None:
    made = make_run().submitted().attempt().end("finished", next=None)
    with made.folder.events.open("ab") as file:
        file.write(b'{"event": "end", "error": "' + b"x" * SIZE)
    (shown,) = data_of(look(looker, tmp_path, "status", "--json").out)
    assert shown["state"] == "finished"
