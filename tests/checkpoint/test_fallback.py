"""After a crash, a second start or damage: the newest checkpoint that is whole, and never a worse one unsaid."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint.ranks import on_ranks
from private_cluster import wait_until

from slurmopt.checkpoint import Checkpointer
from slurmopt.errors import CheckpointError
from slurmopt.job.worker.current_run import CurrentRun

Attempt = Callable[..., Any]
Journal = Callable[[str], list[dict[str, Any]]]
KEEP_ALL = {"shared": {"every": 1, "keep": 99}}
ELEMENTS = 3_000_000  # 12 MB: more than one segment


def state_of(step: int) -> dict[str, Any]:
    return {"w": torch.full((ELEMENTS,), float(step)), "frozen": torch.arange(2_000_000), "note": {"step": step}}


def holds(state: dict[str, Any], step: int) -> bool:
    """Whether all of it is that step's."""
    whole = torch.equal(state["w"], torch.full((ELEMENTS,), float(step)))
    return whole and state["note"] == {"step": step} and torch.equal(state["frozen"], torch.arange(2_000_000))


def save_steps(run: Any, config: dict[str, Any], *steps: int) -> None:
    with Checkpointer(config, run) as saving:
        for step in steps:
            assert saving.save(step, state_of(step))
            assert saving.wait()


def restored(run: Any, config: dict[str, Any]) -> int:
    """The step that comes back, after a look at all of the state."""
    state = state_of(77)
    state["frozen"].zero_()
    with Checkpointer(config, run) as saving:
        step = saving.restore(state)
    assert step == 0 or holds(state, step)
    return step


def flip_one_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def of_step(root: Path, step: int, name: str) -> Path:
    (path,) = root.glob(f"step-{step:08d}/*/{name}")
    return path


# --- the newest, wherever it is


def test_the_newest_is_taken_wherever_it_lies(attempt: Attempt, journal: Journal, tmp_path: Path) -> None:
    scratch, shared = {"path": str(tmp_path / "scratch"), "keep": 9}, {"path": str(tmp_path / "shared"), "keep": 9}
    both = {"scratch": {**scratch, "every": 2}, "shared": {**shared, "every": 3}}
    save_steps(attempt(0), {"scratch": {**scratch, "every": 2}, "shared": {"path": None}}, 2, 4)
    assert restored(attempt(1), both) == 4
    save_steps(attempt(2), {"shared": {**shared, "every": 3}}, 6)
    assert restored(attempt(3), both) == 6
    shutil.rmtree(tmp_path / "shared")
    assert restored(attempt(4), both) == 4
    told = [(event["step"], event["tier"]) for event in journal("restored")]
    assert told == [(4, "scratch"), (6, "shared"), (4, "scratch")]


def _train_until_the_node_dies(run: CurrentRun, config: dict[str, Any]) -> None:
    saving = Checkpointer(config, run)
    saving.restore(state_of(0))
    for step in range(1, 6):
        saving.save(step, state_of(step))
        assert saving.wait()
    os.killpg(0, signal.SIGKILL)


def test_what_only_scratch_had_when_the_node_died_goes_to_shared(
    attempt: Attempt, folder: Path, tmp_path: Path
) -> None:
    scratch = {"path": str(tmp_path / "scratch"), "every": 1}
    config = {"scratch": scratch, "shared": {"every": 3, "keep": 9}, "durable": "scratch"}
    (outcome,) = on_ranks(_train_until_the_node_dies, folder, config, nodes=["here"])
    assert outcome.status == -signal.SIGKILL, outcome.error
    later = {"scratch": scratch, "shared": {"every": 2, "keep": 9}}  # of which step 4 is lacking there
    assert restored(attempt(1), later) == 5
    shutil.rmtree(tmp_path / "scratch")
    assert restored(attempt(2), later) == 5, "it is on shared now"


def test_what_shared_would_not_have_got_yet_stays_on_scratch(attempt: Attempt, folder: Path, tmp_path: Path) -> None:
    config = {"scratch": {"path": str(tmp_path / "scratch"), "every": 1}, "shared": {"every": 4}}
    save_steps(attempt(0), config, 1, 2)
    assert restored(attempt(1), config) == 2
    assert list((folder / "checkpoints").glob("step-*")) == []


def _die_while_writing(run: CurrentRun, config: dict[str, Any]) -> None:
    saving = Checkpointer(config, run)
    step = saving.restore(state_of(0))
    saving.save(step + 1, state_of(step + 1))
    assert saving.wait()
    saving.save(step + 2, state_of(step + 2))
    os.killpg(0, signal.SIGKILL)


def test_a_save_cut_short_never_counts_and_its_rest_is_removed(attempt: Attempt, folder: Path) -> None:
    """The second save of each attempt may be whole or not; what comes back is one of the two, unmixed."""
    for number in range(3):
        on_ranks(_die_while_writing, folder, KEEP_ALL, nodes=["here"], attempt=number)
    assert 3 <= restored(attempt(3), KEEP_ALL) <= 6
    with Checkpointer({"shared": {"every": 1, "keep": 1}, "incremental": False}, attempt(4)) as saving:
        assert saving.save(90, state_of(90))
        assert saving.wait()
    # The writer answers a save before it removes what is not needed, so that nobody waits for that.
    checkpoints = folder / "checkpoints"
    only_the_last = lambda: [path.name for path in checkpoints.glob("step-*")] == ["step-00000090"]  # noqa: E731
    wait_until(only_the_last, 30, "the rest is removed", lambda: sorted(checkpoints.iterdir()))


# --- who may save


def test_an_older_attempt_that_is_still_alive_is_told_and_never_counts(attempt: Attempt, folder: Path) -> None:
    old = Checkpointer(KEEP_ALL, attempt(0))
    old.save(1, state_of(1))
    assert old.wait()
    with Checkpointer(KEEP_ALL, attempt(1)) as new:
        assert new.restore(state_of(0)) == 1
        assert old.save(9, state_of(9))
        assert not old.wait()
        with pytest.raises(CheckpointError, match=r"attempt .*has taken over; attempt 0 saves nothing more"):
            old.save(10, state_of(10))
        old.close()
        assert new.save(2, state_of(2))
        assert new.wait()
    assert restored(attempt(2), KEEP_ALL) == 2
    with pytest.raises(CheckpointError, match=r"attempt 2 has taken over; attempt 1 saves nothing more") as error:
        Checkpointer(KEEP_ALL, attempt(1))
    assert "\n" not in str(error.value)
    assert restored(attempt(3), KEEP_ALL) == 2, "and nothing that the refused one did is in the way"


def _begin(run: CurrentRun, config: dict[str, Any]) -> None:
    Checkpointer(config, run).close()


def test_a_second_process_of_the_same_attempt_is_refused_while_the_first_lives(attempt: Attempt, folder: Path) -> None:
    first = Checkpointer(KEEP_ALL, attempt(0))
    first.save(1, state_of(1))
    assert first.wait()
    (outcome,) = on_ranks(_begin, folder, KEEP_ALL, nodes=["here"])
    words = rf"{folder}/checkpoints: process \d+ saves the same attempt of this run; wait for it or stop it$"
    assert re.search(f"^slurmopt.errors.CheckpointError: {words}", outcome.last_line), outcome.error
    assert first.save(2, state_of(2)), "it is not disturbed"
    assert first.wait()
    first.close()
    with Checkpointer(KEEP_ALL, attempt(0)) as second:
        assert second.restore(state_of(0)) == 2
        assert second.save(3, state_of(3))
        assert second.wait()


def test_the_place_of_a_process_that_was_killed_is_taken(attempt: Attempt, folder: Path) -> None:
    on_ranks(_die_while_writing, folder, KEEP_ALL, nodes=["here"])
    assert restored(attempt(0), KEEP_ALL) in (1, 2)


# --- damage


@pytest.mark.parametrize("victim", ["rank-00000.bin", "manifest.json"])
@pytest.mark.parametrize("harm", ["flip", "truncate", "remove"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_taken(
    attempt: Attempt, journal: Journal, folder: Path, capfd: Any, victim: str, harm: str
) -> None:
    full = {**KEEP_ALL, "incremental": False}
    save_steps(attempt(0), full, 1, 2)
    path = of_step(folder / "checkpoints", 2, victim)
    if harm == "flip":
        flip_one_byte(path)
    elif harm == "truncate":
        os.truncate(path, path.stat().st_size // 3)
    else:
        path.unlink()
    name = str(path.parent.relative_to(folder / "checkpoints"))
    with Checkpointer(full, attempt(1)) as saving:
        state = state_of(77)
        assert saving.restore(state) == 1
        assert holds(state, 1)
        (event,) = journal("checkpoint-damaged")
        assert (event["checkpoint"], event["tier"], event["attempt"]) == (name, "shared", 1)
        assert victim in event["reason"]
        assert len([line for line in capfd.readouterr().err.splitlines() if name in line]) == 1
    with Checkpointer(full, attempt(2)) as saving:
        assert saving.restore(state_of(77)) == 1
        assert len(journal("checkpoint-damaged")) == 1, "it is not tried again"
        assert saving.save(2, state_of(2)), "the same step once more"
        assert saving.wait()
    assert restored(attempt(3), full) == 2


def test_nothing_refers_to_what_is_damaged(attempt: Attempt, folder: Path) -> None:
    """Step 1 holds the frozen bytes of all; once they are damaged, they are written again."""
    save_steps(attempt(0), KEEP_ALL, 1, 2)
    flip_one_byte(of_step(folder / "checkpoints", 2, "rank-00000.bin"))
    with Checkpointer(KEEP_ALL, attempt(1)) as saving:
        assert saving.restore(state_of(0)) == 1
        damaged = of_step(folder / "checkpoints", 2, "rank-00000.bin").parent
        assert saving.save(3, state_of(3))
        assert saving.wait()
    shutil.rmtree(damaged)
    assert restored(attempt(2), KEEP_ALL) == 3


def test_damage_in_what_all_refer_to_spoils_all_and_says_so(attempt: Attempt, journal: Journal, folder: Path) -> None:
    save_steps(attempt(0), KEEP_ALL, 1, 2)
    flip_one_byte(of_step(folder / "checkpoints", 1, "rank-00000.bin").rename(folder / "moved"))
    with Checkpointer(KEEP_ALL, attempt(1)) as saving, pytest.raises(CheckpointError) as error:
        saving.restore(state_of(0))
    names = [event["checkpoint"] for event in journal("checkpoint-damaged")]
    assert [name[:13] for name in names] == ["step-00000002", "step-00000001"]
    assert all(name in str(error.value) for name in names), "never 0 in silence"
    assert "\n" not in str(error.value)


def test_of_two_tiers_the_whole_copy_is_taken(attempt: Attempt, journal: Journal, tmp_path: Path, folder: Path) -> None:
    config = {"scratch": {"path": str(tmp_path / "scratch"), "every": 1}, "shared": {"every": 1}}
    save_steps(attempt(0), config, 1, 2)
    flip_one_byte(of_step(tmp_path / "scratch" / "demo" / "0001", 2, "rank-00000.bin"))
    assert restored(attempt(1), config) == 2
    assert [event["tier"] for event in journal("restored")] == ["shared"]
    assert [event["tier"] for event in journal("checkpoint-damaged")] == ["scratch"]


def test_a_file_of_another_step_is_no_substitute(attempt: Attempt, folder: Path) -> None:
    full = {**KEEP_ALL, "incremental": False}
    save_steps(attempt(0), full, 1, 2, 3)
    shutil.copy(
        of_step(folder / "checkpoints", 1, "rank-00000.bin"), of_step(folder / "checkpoints", 3, "rank-00000.bin")
    )
    assert restored(attempt(1), full) == 2


def test_cleaning_up_takes_nothing_that_is_being_written(attempt: Attempt, folder: Path) -> None:
    """The first commit of an attempt removes what dead ones left, while the next save is on its way."""
    root = folder / "checkpoints"
    left = [root / f"step-{step:08d}" / "a0000-0123abcd" / "rank-00000.bin" for step in [*range(100, 700), 9999]]
    for path in left:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"cut short")
    with Checkpointer(KEEP_ALL, attempt(1)) as saving:
        for step in (1, 9999):
            assert saving.save(step, state_of(step))
            assert saving.wait()
    assert restored(attempt(2), KEEP_ALL) == 9999
    assert [path for path in left if path.exists()] == []
