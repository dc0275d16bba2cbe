"""Compressed checkpoints: every stored bit counts, and those of the format before this one still restore."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import xxhash

from slurmopt.checkpoint import Checkpointer
from slurmopt.checkpoint.format import ledger
from slurmopt.commands.checkpoint.main import main

zstandard = pytest.importorskip("zstandard")

Attempt = Callable[..., Any]
Journal = Callable[[str], list[dict[str, Any]]]
CONFIG = {"shared": {"every": 1, "keep": 9, "compression": "zstd"}}
_DESCRIPTOR, _UNUSED = 4, 1 << 4
"""The byte of a frame behind its magic number, and the bit in it that decoders have to ignore (RFC 8878, 3.1.1.1.1)."""


def save_steps(run: Any, *steps: int) -> None:
    with Checkpointer(CONFIG, run) as saving:
        saving.restore({"w": torch.zeros(3_000_000), "frozen": torch.zeros(1_000_000), "note": 0})
        for step in steps:
            assert saving.save(step, state_of(step))
            assert saving.wait()


def state_of(step: int) -> dict[str, Any]:
    return {"w": torch.full((3_000_000,), float(step)), "frozen": torch.ones(1_000_000), "note": step}


def restored(run: Any) -> tuple[int, dict[str, Any]]:
    state = {"w": torch.zeros(3_000_000), "frozen": torch.zeros(1_000_000), "note": 0}
    with Checkpointer(CONFIG, run) as saving:
        return saving.restore(state), state


def is_step(state: dict[str, Any], step: int) -> bool:
    expected = state_of(step)
    return state["note"] == step and all(torch.equal(state[name], expected[name]) for name in ("w", "frozen"))


def manifest_of(folder: Path, step: int) -> Path:
    (path,) = folder.glob(f"checkpoints/step-{step:08d}/*/manifest.json")
    return path


def test_a_bit_that_the_decoder_ignores_is_damage(
    attempt: Attempt, journal: Journal, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_steps(attempt(0), 1, 2)
    (payload,) = manifest_of(folder, 2).parent.glob("rank-*.bin")
    whole = bytearray(payload.read_bytes())
    items = json.loads(manifest_of(folder, 2).read_bytes())["items"]
    offset, length = next(item[3][1][1:3] for item in items if item[0] == "w")  # its second piece
    frame = bytes(whole[offset : offset + length])
    whole[offset + _DESCRIPTOR] ^= _UNUSED
    changed = bytes(whole[offset : offset + length])
    unpack = zstandard.ZstdDecompressor().decompress
    assert unpack(changed) == unpack(frame)
    payload.write_bytes(whole)
    assert main(["verify", str(folder / "checkpoints"), "2"]) == 1
    assert f"is damaged at byte {offset:,} (checksum)" in capsys.readouterr().out
    step, state = restored(attempt(1))
    assert step == 1
    assert is_step(state, 1)
    (damaged,) = journal("checkpoint-damaged")
    assert damaged["reason"].endswith(f"is damaged at byte {offset:,} (checksum)")


def make_format_1(folder: Path) -> None:
    """Rewrites the run's checkpoint into what slurmopt wrote before compressed bytes had checksums of their own."""
    path = manifest_of(folder, 1)
    values = json.loads(path.read_bytes())
    values["format"] = 1
    for item in values["items"]:
        item[3] = [segment[:5] for segment in item[3]]
    path.write_text(json.dumps(values))
    for record in folder.glob("checkpoints/commits/*.json"):
        held = json.loads(record.read_bytes())
        if held.pop("xxh3") and held["kind"] == "commit":
            record.write_bytes(ledger._encoded({**held, "manifest_xxh3": xxhash.xxh3_128_hexdigest(path.read_bytes())}))


def test_the_format_before_restores_and_nothing_new_refers_to_its_compressed_bytes(
    attempt: Attempt, folder: Path
) -> None:
    save_steps(attempt(0), 1)
    make_format_1(folder)
    step, state = restored(attempt(1))
    assert step == 1
    assert is_step(state, 1)
    save_steps(attempt(2), 2, 3)
    new, later = (json.loads(manifest_of(folder, step).read_bytes()) for step in (2, 3))
    segments = [segment for item in new["items"] for segment in item[3]]
    assert all(segment[5] for segment in segments)
    assert {key.partition("/")[0] for key, *_ in new["files"]} == {"step-00000002"}
    assert {key.partition("/")[0] for key, *_ in later["files"]} == {"step-00000002", "step-00000003"}, "frozen is not"
    step, state = restored(attempt(3))
    assert step == 3
    assert is_step(state, 3)
