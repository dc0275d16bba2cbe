"""A run that goes on with fewer or more ranks takes the same steps: the same samples in each, and the same gradient."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from slurmopt.errors import JobError
from slurmopt.run_folder import events
from slurmopt.training import MicroBatch, ResumableSampler

SCRIPT = Path(__file__).with_name("elastic.py")
SAMPLES, GLOBAL_BATCH, STEPS = 103, 10, 24
DEADLINE = 300


def world(size: int, ranks: int, batch: int, whole: int, state: Any = None, **more: Any) -> list[ResumableSampler]:
    """The samplers of all ranks, as a restore leaves them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ranks that have nothing to do
        samplers = [
            ResumableSampler(size, batch_size=batch, global_batch=whole, rank=rank, world_size=ranks, **more)
            for rank in range(ranks)
        ]
    for sampler in samplers if state is not None else ():
        sampler.load_state_dict(json.loads(json.dumps(state)))
    return samplers


def epoch_steps(samplers: list[ResumableSampler], most: int) -> list[list[list[MicroBatch[list[int]]]]]:
    """What each rank gets in each of the next steps; all ranks must get the same number of batches."""
    steps: list[list[list[MicroBatch[list[int]]]]] = []
    passes: list[list[MicroBatch[list[int]]]] = [[] for _ in samplers]
    for micros in zip(*(sampler.accumulate(sampler) for sampler in samplers), strict=True):
        for taken, micro in zip(passes, micros, strict=True):
            taken.append(micro)
        assert len({micro.last for micro in micros}) == 1, "the ranks leave a step together"
        if micros[0].last:
            steps.append(passes)
            passes = [[] for _ in samplers]
            if len(steps) == most:
                break
    return steps


def counted(step: list[list[MicroBatch[list[int]]]]) -> list[int]:
    return [index for rank in step for micro in rank if micro.samples for index in micro.batch]


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(1, 150),
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 7), st.integers(1, 6)), min_size=1, max_size=4),
    st.booleans(),
)
@example(103, 10, [(2, 2, 5), (4, 1, 6), (2, 3, 3)], True)
@example(64, 64, [(3, 1, 1)], False)
def test_each_step_has_the_same_samples_whatever_worlds_go_on(
    size: int, whole: int, worlds: list[tuple[int, int, int]], shuffle: bool
) -> None:
    """Each world (ranks, batch size, steps) is interrupted after its steps; a last one of 3 ranks goes to the end."""
    (alone,) = world(size, 1, whole, whole, seed=5, shuffle=shuffle)
    expected = [counted(step) for step in epoch_steps([alone], size)]
    assert [len(step) for step in expected[:-1]] == [whole] * (len(expected) - 1)
    assert sorted(index for step in expected for index in step) == list(range(size))
    seen: list[list[int]] = []
    state: dict[str, Any] | None = None
    for ranks, batch, most in [*worlds, (3, 2, size)]:
        samplers = world(size, ranks, batch, whole, state, seed=5, shuffle=shuffle)
        assert len(samplers[0]) == len(expected)
        if samplers[0].epoch == 0:
            seen += [counted(step) for step in epoch_steps(samplers, min(most, samplers[0].batches_left))]
        states = [sampler.state_dict() for sampler in samplers]
        assert all(each == states[0] for each in states)
        state = states[0]
    assert seen == expected


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 120), st.integers(1, 40), st.integers(1, 9), st.integers(1, 7), st.booleans())
@example(64, 64, 3, 1, False)
@example(3, 10, 4, 2, False)
def test_no_batch_is_empty_or_too_large_and_the_weights_make_a_mean(
    size: int, whole: int, ranks: int, batch: int, drop_last: bool
) -> None:
    if drop_last and size < whole:
        return
    samplers = world(size, ranks, batch, whole, drop_last=drop_last)
    steps = epoch_steps(samplers, size)
    for step in steps:
        samples = sum(micro.samples for rank in step for micro in rank)
        assert samples == (whole if step is not steps[-1] or drop_last else (size - 1) % whole + 1)
        assert {len(rank) for rank in step} == {math.ceil(math.ceil(samples / ranks) / batch)}
        shares = [sum(micro.samples for micro in rank) for rank in step]
        assert max(shares) - min(shares) <= 1
        for micro in (micro for rank in step for micro in rank):
            assert len(micro.batch) == (micro.samples or 1) <= batch
            assert micro.weight == pytest.approx(micro.samples * ranks / samples)
    assert samplers[0].micro_batches == math.ceil(math.ceil(whole / ranks) / batch)


# --- real ranks


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elastic")
    ended = subprocess.run([sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True, timeout=DEADLINE)
    logs = [path.read_text() for path in folder.rglob("rank-*.log")]
    assert ended.returncode == 0, ended.stderr + "".join(logs)
    return folder


def final(folder: Path, rank: int = 0) -> dict[str, Any]:
    ended: dict[str, Any] = json.loads((folder / f"final-{rank}.json").read_text())
    return ended


def samples_of_steps(folder: Path) -> list[list[int]]:
    """Those of each step in the order of the ranks, which is that of the epoch."""
    ranks = [events.read(path) for path in sorted(folder.glob("[0-9].jsonl"))]
    numbers = range(1, STEPS + 1)
    return [
        [index for rank in ranks for line in rank if line["step"] == number for index in line["seen"]]
        for number in numbers
    ]


@pytest.mark.parametrize(("name", "worlds"), [("ddp", [2, 4, 2, 3]), ("fsdp", [2, 4, 2])])
def test_the_same_model_comes_of_a_changing_number_of_ranks(trained: Path, name: str, worlds: list[int]) -> None:
    attempts = sorted((trained / name / "logs").iterdir())
    assert [len(list(attempt.glob("rank-*.log"))) for attempt in attempts] == worlds
    undisturbed, elastic = final(trained / "undisturbed"), final(trained / name)
    assert undisturbed["weights"].keys() == elastic["weights"].keys()
    for weight, expected in undisturbed["weights"].items():
        torch.testing.assert_close(torch.tensor(elastic["weights"][weight]), torch.tensor(expected), rtol=1e-9, atol=0)
    assert undisturbed["steps_an_epoch"] == elastic["steps_an_epoch"] == 11


@pytest.mark.parametrize("name", ["ddp", "fsdp", "interrupted"])
def test_each_step_has_the_samples_of_the_undisturbed_run_in_order(trained: Path, name: str) -> None:
    seen = samples_of_steps(trained / name)
    assert seen == samples_of_steps(trained / "undisturbed")
    assert [len(step) for step in seen] == [*[10] * 10, 3, *[10] * 10, 3, 10, 10]
    for begin, end in pairwise((0, 11, 22)):
        assert sorted(index for step in seen[begin:end] for index in step) == list(range(SAMPLES))


def test_on_the_same_number_of_ranks_no_bit_differs(trained: Path) -> None:
    for rank in (0, 1):
        assert final(trained / "steady", rank)["digest"] == final(trained / "interrupted", rank)["digest"]


def test_gradients_are_exchanged_once_a_step(trained: Path) -> None:
    """A model as small as this one is one bucket."""
    for path in (trained / "ddp").glob("[0-9].jsonl"):
        assert {line["exchanges"] for line in events.read(path)} == {1}


# --- bad input


def loader_of(sampler: ResumableSampler) -> DataLoader[Any]:
    return DataLoader(range(10), batch_sampler=sampler)  # type: ignore[arg-type]


def test_a_loop_that_would_ignore_the_weights_is_refused() -> None:
    (sampler,) = world(10, 1, 2, 4)
    with pytest.raises(JobError, match=re.escape("iterate sampler.accumulate(loader, model)")):
        next(iter(sampler.track(loader_of(sampler))))
    with pytest.raises(JobError, match=re.escape("iterate sampler.accumulate(loader, model)")):
        sampler.advance()
    plain = ResumableSampler(10, batch_size=2)
    with pytest.raises(JobError, match=r"no global_batch; give it one, or iterate sampler\.track\(loader\)"):
        next(iter(plain.accumulate(loader_of(plain))))
    assert sampler.consumed == plain.consumed == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"global_batch": 0}, "global_batch is 0; valid is a whole number from 1"),
        ({"global_batch": 2.5}, "global_batch is 2.5"),
        ({"global_batch": 11, "drop_last": True}, "drop_last leaves nothing of 10 samples: a global batch has 11"),
    ],
)
def test_a_wrong_global_batch_is_named(arguments: dict[str, Any], line: str) -> None:
    with pytest.raises(JobError) as told:
        ResumableSampler(10, **{"batch_size": 2, **arguments})
    assert str(told.value).endswith(line) or line in str(told.value)


def test_ranks_without_work_are_told_once() -> None:
    with pytest.warns(UserWarning, match="a global batch of 3 leaves 5 ranks without work"):
        ResumableSampler(10, batch_size=2, global_batch=3, rank=0, world_size=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ResumableSampler(10, batch_size=2, global_batch=3, rank=1, world_size=8)


def test_a_step_that_was_left_in_its_middle_is_taken_again() -> None:
    (sampler,) = world(10, 1, 2, 4, shuffle=False)
    first = next(iter(sampler.accumulate(loader_of(sampler))))
    assert (first.batch.tolist(), first.last, sampler.consumed) == ([0, 1], False, 0)
    again = [micro.batch.tolist() for micro in sampler.accumulate(loader_of(sampler))]
    assert again == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert (sampler.epoch, sampler.consumed) == (1, 0)
