"""A seeded slice of `scripts/chaos survival`, which runs at full length by hand; and its judge finds what is wrong."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from private_cluster import clean_environment, require_slurm

pytest.importorskip("torch")
SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from chaos_runs.survival.judged import wrong_samples  # noqa: E402
from chaos_runs.survival.watched import Attempt  # noqa: E402

SAMPLES, STEPS_OF_AN_EPOCH = 403, 26


def chaos(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "chaos"), "survival", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=1800, env=clean_environment())


def test_a_training_survives_the_death_of_a_rank_and_is_judged() -> None:
    require_slurm()
    done = chaos("--seed", "3", "--faults", "1", "--kinds", "rank killed", "--per-node", "1")
    assert done.returncode == 0, done.stderr[-6000:]
    summary = done.stdout.splitlines()[-1]
    assert re.search(r"seed 3: 1 of 1 runs completed, 1 faults, .* 0 missed; \d+ s: ok$", summary), summary
    (row,) = [line for line in done.stderr.splitlines() if "run 0: rank killed " in line]
    assert re.split(r"\s{2,}", row)[1:3] == ["0 to 1", "killed"]


def test_a_kind_of_fault_that_does_not_exist_is_told_with_those_that_do() -> None:
    done = chaos("--kinds", "requeue,earthquake")
    assert done.returncode == 2
    assert "earthquake: unknown; valid: time limit, preemption, " in done.stderr


def undisturbed(epochs: int = 2) -> dict[int, Attempt]:
    """One attempt of four ranks that takes each sample once an epoch."""
    attempt = Attempt(ranks=4)
    for step in range(STEPS_OF_AN_EPOCH * epochs):
        place = step % STEPS_OF_AN_EPOCH
        first, last = (SAMPLES * each // STEPS_OF_AN_EPOCH for each in (place, place + 1))
        for rank in range(4):
            samples = list(range(first + rank, last, 4))
            attempt.steps[step + 1][rank] = {"time": step, "epoch": step // STEPS_OF_AN_EPOCH, "samples": samples}
    return {0: attempt}


def interrupted(at: int, back_to: int) -> dict[int, Attempt]:
    """The same in two attempts: the steps between were done twice."""
    first, second = undisturbed()[0], undisturbed()[0]
    first.steps = {step: ranks for step, ranks in first.steps.items() if step <= at}
    second.steps = {step: ranks for step, ranks in second.steps.items() if step > back_to}
    return {0: first, 1: second}


def test_steps_that_were_done_again_count_once() -> None:
    assert wrong_samples(interrupted(at=30, back_to=22), undisturbed()) == []


def test_a_step_that_nobody_did_is_missed() -> None:
    assert "1 steps had other samples than undisturbed, the first is 31" in wrong_samples(
        interrupted(at=30, back_to=31), undisturbed()
    )


def test_other_samples_the_second_time_are_missed() -> None:
    record: dict[int, Any] = interrupted(at=30, back_to=22)
    record[1] = copy.deepcopy(record[1])
    record[1].steps[25][2]["samples"].append(7)
    found = wrong_samples(record, undisturbed())
    assert len(found) == 1
    assert found[0].startswith("attempt 1, step 25, rank 2: ")


def test_samples_that_come_twice_in_an_epoch_are_missed_even_where_both_runs_agree() -> None:
    both = undisturbed()
    both[0].steps[3][0]["samples"].append(400)
    assert wrong_samples(both, both) == [
        f"epoch 0: {SAMPLES} different samples, {SAMPLES + 1} in all; expected: {SAMPLES} once each"
    ]
