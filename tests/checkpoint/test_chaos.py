"""A seeded slice of `scripts/chaos checkpoints`, which runs at full length by hand."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
CHAOS = Path(__file__).resolve().parents[2] / "scripts" / "chaos"
sys.path.insert(0, str(CHAOS.parent))

from chaos_runs.checkpoints.kills import phase  # noqa: E402
from chaos_runs.checkpoints.ranks import Plan, Training, standing  # noqa: E402

from slurmopt.checkpoint.format import ledger  # noqa: E402
from slurmopt.checkpoint.format.ledger import Commit, Ledger  # noqa: E402
from slurmopt.storage.folder import FolderStore  # noqa: E402

Until = Callable[[Callable[[], Any]], Any]


def chaos(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CHAOS), "checkpoints", "--folder", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=1800, cwd=folder)


def test_what_was_reported_durable_survives_sigkill_and_is_never_a_mix(tmp_path: Path) -> None:
    done = chaos("--seed", "3", "--kills", "12", "--damages", "0", folder=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    summary = done.stdout.splitlines()[-1]
    assert re.search(r"seed 3: 12 kills \(.*\), \d+ restores, 0 lost; \d+ s: ok$", summary), summary


def test_every_damage_is_found_and_the_newest_whole_checkpoint_is_taken(tmp_path: Path) -> None:
    done = chaos("--seed", "3", "--kills", "0", "--damages", "15", folder=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert ", 15 found, 15 fell back, 0 lost" in done.stdout.splitlines()[-1]


def a_time_that_two_texts_name() -> float:
    """With 17 digits, so that another last digit is the same number: its checksum would not show the difference."""
    value = 1.79e9
    while float(other_last_digit(repr(value))) != value:
        value = math.nextafter(value, math.inf)
    return value


def other_last_digit(text: str) -> str:
    return text[:-1] + chr(ord(text[-1]) ^ 1)


def test_each_bit_of_a_record_counts_for_slurmopt_and_for_its_judge(tmp_path: Path) -> None:
    """A record that is damaged says nothing, whichever byte it was; the checkpoint before it stands."""
    unique, earlier, moment = "a0000-00000001", "a0000-00000000", a_time_that_two_texts_name()
    hold = Ledger(FolderStore(tmp_path), 0, "me")
    hold.open()
    for step, name in ((1, earlier), (2, unique)):
        manifest = f"step-{step:08d}/{name}/manifest.json"
        hold.commit(Commit(step, name, 0, moment, manifest, "0" * 32, 1, 1, 1))
    assert [each["step"] for each in standing(tmp_path)] == [1, 2]
    record = tmp_path / ledger.key(0, 2)
    whole = record.read_bytes()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1  # turns a digit into another digit
        record.write_bytes(changed)
        assert [each["step"] for each in standing(tmp_path)] == [1], bytes(changed)
        records = ledger.read(FolderStore(tmp_path))
        assert records.unreadable == [ledger.key(0, 2)], bytes(changed)
        assert [each.step for each in records.commits] == [1]


def test_a_record_that_is_pruned_while_chaos_reads_it_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir()
    (tmp_path / ledger.key(0, 0)).symlink_to("gone")  # listed, and not there any more
    assert standing(tmp_path) == []
    assert phase(tmp_path, "a0000-", "between") == "between"


def test_why_a_training_cannot_begin_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    (folder / "checkpoints" / ledger.key(0, 0)).mkdir(parents=True)  # where the first record belongs
    training = Training(Plan(folder, 0, {"shared": {"every": 1}}, steps=0))
    training.wait()
    assert "CheckpointError: no checkpoint can be saved: " in training.first_error(), training.errors()
    assert "Is a directory" in training.first_error()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_chaos_that_is_ended_leaves_no_training_behind(tmp_path: Path, until: Until, number: signal.Signals) -> None:
    command = [sys.executable, str(CHAOS), "checkpoints", "--seed", "3", "--kills", "20", "--folder", str(tmp_path)]
    running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: list(tmp_path.glob("runs/*/said-0.jsonl")))
    running.send_signal(number)
    assert running.wait(60) == (-number if number == signal.SIGKILL else 130)
    until(lambda: not processes_in(tmp_path))


def processes_in(folder: Path) -> list[str]:
    """The working folder of everything that chaos starts is its own."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_there = os.readlink(path / "cwd") == str(folder)
            is_alive = (path / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if is_there and is_alive:
            found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found
