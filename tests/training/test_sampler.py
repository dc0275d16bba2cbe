"""Each sample of an epoch is seen exactly once, wherever the run was interrupted and however many ranks went on."""

from __future__ import annotations

import itertools
import json
import math
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from slurmopt.errors import CheckpointError, JobError
from slurmopt.training import ResumableSampler
from slurmopt.training.sampling.sampler import Permutation


def world(size: int, ranks: int, batch: int, state: Any = None, **more: Any) -> list[ResumableSampler]:
    """The samplers of all ranks, as a restore leaves them."""
    samplers = [ResumableSampler(size, batch_size=batch, rank=rank, world_size=ranks, **more) for rank in range(ranks)]
    for sampler in samplers if state is not None else ():
        sampler.load_state_dict(json.loads(json.dumps(state)))
    return samplers


def steps(samplers: list[ResumableSampler]) -> Iterator[list[list[int]]]:
    """What the ranks get, step by step; all of them must get the same number of batches."""
    for parts in zip(*map(iter, samplers), strict=True):
        for sampler in samplers:
            sampler.advance()
        yield list(parts)


def flat(parts: list[list[int]]) -> list[int]:
    return [index for part in parts for index in part]


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(1, 200),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 7), st.integers(1, 6)), min_size=1, max_size=5),
    st.integers(0, 3),
    st.booleans(),
)
@example(1, [(8, 4, 1)], 0, True)
@example(103, [(4, 4, 2), (2, 4, 3), (8, 1, 1), (3, 1, 1)], 1, True)
def test_each_sample_once_whatever_worlds_go_on(
    size: int, worlds: list[tuple[int, int, int]], epoch: int, shuffle: bool
) -> None:
    """Each world (ranks, batch size, steps) is interrupted after its steps; a last one of 3 ranks goes to the end."""
    seen: list[int] = []
    state: dict[str, Any] | None = None
    for ranks, batch, lasts in [*worlds, (3, 2, size)]:
        samplers = world(size, ranks, batch, state, seed=5, shuffle=shuffle)
        for sampler in samplers:
            sampler.set_epoch(epoch)
        for parts in itertools.islice(steps(samplers), lasts):
            seen += flat(parts)
        states = [sampler.state_dict() for sampler in samplers]
        assert all(each == states[0] for each in states)
        state = states[0]
        assert state["consumed"] == len(seen)
    assert sorted(seen) == list(range(size))
    assert shuffle or seen == list(range(size))


@pytest.mark.parametrize("after", [1, 2, 3, 8])
def test_four_ranks_interrupted_at_any_step_go_on_as_fewer_or_more(after: int) -> None:
    for stop in range(14 + 1):
        four = world(53, 4, 1)
        seen = [index for parts in itertools.islice(steps(four), stop) for index in flat(parts)]
        seen += [index for parts in steps(world(53, after, 2, four[0].state_dict())) for index in flat(parts)]
        assert sorted(seen) == list(range(53)), stop


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 300), st.integers(1, 9), st.integers(1, 7), st.booleans())
def test_the_ranks_share_each_step_as_evenly_as_possible(size: int, ranks: int, batch: int, drop_last: bool) -> None:
    if drop_last and size < ranks * batch:
        return
    samplers = world(size, ranks, batch, drop_last=drop_last)
    sizes = [[len(part) for part in parts] for parts in steps(samplers)]
    assert len(sizes) == len(samplers[0])
    assert all(max(step) - min(step) <= 1 and max(step) <= batch for step in sizes)
    if drop_last:
        assert sizes == [[batch] * ranks] * (size // (ranks * batch))
    elif batch > 1 and size >= ranks:
        assert all(min(step) >= 1 for step in sizes), "DDP waits for the rank that has nothing to do"
    assert all(sum(step) == ranks * batch for step in sizes[:-2])


def test_the_order_is_the_same_at_any_world_size() -> None:
    orders = [
        [index for parts in steps(world(1000, ranks, batch, seed=3)) for index in flat(parts)]
        for ranks, batch in ((1, 8), (2, 4), (8, 1), (3, 7))
    ]
    assert all(order == orders[0] for order in orders)


def test_the_order_never_changes() -> None:
    """Numbers from the first version: who changes them breaks every run that is in the middle of an epoch."""
    assert Permutation(10, 0, 0)(np.arange(10, dtype=np.uint64)).tolist() == [3, 1, 8, 9, 2, 6, 5, 7, 0, 4]
    large = [48818777, 901255628, 813039032, 229621473, 58161329, 554212921]
    assert Permutation(10**9, 7, 3)(np.arange(6, dtype=np.uint64)).tolist() == large


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = set()
    for seed, epoch in ((0, 0), (0, 1), (1, 0), (1, 1), (-1, 0), (2**62, 0)):
        (sampler,) = world(50, 1, 50, seed=seed)
        sampler.set_epoch(epoch)
        orders.add(tuple(next(iter(sampler))))
    assert len(orders) == 6


# --- with a DataLoader that prefetches


class Numbers(torch.utils.data.Dataset[int]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        return index


def loader_of(sampler: ResumableSampler, **more: Any) -> DataLoader[int]:
    return DataLoader(Numbers(sampler.state_dict()["dataset_size"]), batch_sampler=sampler, **more)


@pytest.mark.parametrize("stop", [1, 2, 5, 9, 13])
def test_what_workers_prefetched_is_not_counted(stop: int) -> None:
    """Interrupted after `stop` steps while workers are up to 8 batches ahead, and resumed with another world size."""
    seen: list[int] = []
    states = []
    for sampler in world(103, 2, 4):
        for batch in itertools.islice(sampler.track(loader_of(sampler, num_workers=2, prefetch_factor=4)), stop):
            seen += batch.tolist()
        states.append(sampler.state_dict())
    assert states[0] == states[1]
    for sampler in world(103, 3, 5, states[0]):
        for batch in sampler.track(loader_of(sampler, num_workers=2 if sampler.batches_left else 0)):
            seen += batch.tolist()
        assert (sampler.epoch, sampler.consumed) == (1, 0)
    assert sorted(seen) == list(range(103))


def test_a_loop_that_is_left_and_entered_again_goes_on() -> None:
    (sampler,) = world(20, 1, 3)
    loader = loader_of(sampler, num_workers=1, persistent_workers=True)
    seen: list[int] = []
    while sampler.epoch == 0:
        for batch in itertools.islice(sampler.track(loader), 2):
            seen += batch.tolist()
    assert sorted(seen[:20]) == list(range(20))


@pytest.mark.parametrize("stop", range(15))
def test_a_resumed_run_sees_what_the_uninterrupted_one_would_have(stop: int) -> None:
    """Three epochs of five steps, saved within the loop after a step, also after the last of an epoch."""

    def training(state: Any, stop: int | None) -> tuple[list[Any], Any]:
        (sampler,) = world(14, 1, 3, state, seed=9)
        log: list[Any] = []
        for epoch in range(sampler.epoch, 3):
            sampler.set_epoch(epoch)
            for batch in sampler.track(loader_of(sampler)):
                log.append((epoch, batch.tolist(), torch.rand(()).item()))
                if stop is not None and len(log) > stop:
                    return log, (sampler.state_dict(), torch.get_rng_state())
        return log, None

    torch.manual_seed(1)
    whole, _ = training(None, None)
    torch.manual_seed(1)
    first, (state, generator) = training(None, stop)
    torch.manual_seed(99)  # whatever the new process did before
    torch.set_rng_state(generator)
    second, _ = training(state, None)
    assert first + second == whole
    assert len(whole) == 15


def test_a_loop_over_steps_needs_no_epochs() -> None:
    (sampler,) = world(10, 1, 4)
    seen = []
    while sampler.epoch < 2:
        seen += [batch.tolist() for batch in sampler.track(loader_of(sampler))]
    assert sorted(flat(seen[:3])) == sorted(flat(seen[3:])) == list(range(10))
    assert seen[:3] != seen[3:]


def test_setting_the_epoch_that_is_being_consumed_keeps_the_place() -> None:
    (sampler,) = world(10, 1, 2)
    sampler.advance()
    sampler.set_epoch(0)
    assert (sampler.consumed, sampler.batches_left, len(sampler)) == (2, 4, 5)
    sampler.set_epoch(1)
    assert (sampler.consumed, sampler.batches_left, len(sampler)) == (0, 5, 5)


def test_workers_that_start_again_do_not_repeat_the_random_numbers_of_the_first() -> None:
    (sampler,) = world(12, 1, 2)
    loader = loader_of(sampler, num_workers=1, collate_fn=lambda _: random.random())
    drawn = [next(iter(sampler.track(loader))) for _ in range(4)]
    assert len(set(drawn)) == 4


def test_a_loader_that_was_not_tracked_is_told_when_the_state_is_saved() -> None:
    (sampler,) = world(10, 1, 2)
    loader = loader_of(sampler)
    next(iter(loader))
    with pytest.warns(UserWarning, match=r"iterate `sampler.track\(loader\)`"):
        sampler.state_dict()
    next(iter(sampler.track(loader)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler.state_dict()


# --- bad input


def test_a_loader_that_cannot_be_tracked_is_refused() -> None:
    (sampler,), (other,) = world(10, 1, 2), world(10, 1, 2)
    with pytest.raises(JobError, match="the loader has another sampler"):
        next(iter(sampler.track(loader_of(other))))
    with pytest.raises(JobError, match="the loader has another sampler"):
        next(iter(sampler.track(DataLoader(Numbers(10), batch_size=2))))
    with pytest.raises(JobError, match="in_order=False"):
        next(iter(sampler.track(loader_of(sampler, num_workers=1, in_order=False))))
    assert sampler.consumed == 0


def test_a_sampler_that_is_moved_within_its_loop_is_told() -> None:
    (sampler,) = world(10, 1, 2)
    loop = sampler.track(loader_of(sampler))
    next(loop)
    sampler.set_epoch(7)
    with pytest.raises(JobError, match="moved while a loop over it was running"):
        next(loop)


def test_more_batches_than_there_are_cannot_be_consumed() -> None:
    (sampler,) = world(3, 1, 2)
    sampler.advance()
    sampler.advance()
    with pytest.raises(JobError, match="epoch 0 has no batch left"):
        sampler.advance()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"dataset_size": 11}, "the sampler's dataset_size is 10, and in the checkpoint it is 11"),
        ({"seed": 1}, "the sampler's seed is 0, and in the checkpoint it is 1"),
        ({"order": "sequential"}, "the sampler's order is 'keyed-1', and in the checkpoint it is 'sequential'"),
        ({"consumed": 11}, "the sampler's consumed in the checkpoint is 11; valid is 0 to 10"),
        ({"epoch": -1}, "the sampler's epoch in the checkpoint is -1"),
        ({"epoch": "1"}, "the sampler's epoch in the checkpoint is '1'"),
    ],
)
def test_a_place_in_another_order_is_refused(change: dict[str, Any], line: str) -> None:
    (sampler,) = world(10, 1, 2)
    state = sampler.state_dict()
    with pytest.raises(CheckpointError) as told:
        sampler.load_state_dict({**state, **change})
    assert line in str(told.value)
    for name in set(state) - {"fingerprint"}:  # which checkpoints of earlier versions lack
        with pytest.raises(CheckpointError, match=name):
            sampler.load_state_dict({key: value for key, value in state.items() if key != name})


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"dataset_size": 0}, "dataset_size is 0; valid is a whole number from 1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": True}, "batch_size is True"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"rank": 2, "world_size": 2}, "rank is 2; valid is a whole number from 0 to 1"),
        ({"rank": 0}, "only one of rank and world_size"),
        ({"dataset_size": 7, "drop_last": True, "rank": 0, "world_size": 4}, "drop_last leaves nothing of 7 samples"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, Any], line: str) -> None:
    with pytest.raises(JobError) as told:
        ResumableSampler(**{"dataset_size": 10, "batch_size": 2, **arguments})
    assert line in str(told.value)


# --- where the rank comes from


def test_the_rank_is_that_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert next(iter(ResumableSampler(8, batch_size=2, shuffle=False))) == [0, 1]
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert next(iter(ResumableSampler(8, batch_size=2, shuffle=False))) == [6, 7]


@pytest.mark.slow
def test_the_process_group_is_believed_first(tmp_path: Any) -> None:
    code = (
        "import sys, torch.distributed as dist; from slurmopt.training import ResumableSampler\n"
        f"dist.init_process_group('gloo', init_method='file://{tmp_path}/meet', rank=int(sys.argv[1]), world_size=2)\n"
        "print(list(ResumableSampler(8, batch_size=2, shuffle=False)))\n"
        "dist.barrier(); dist.destroy_process_group()"
    )
    ranks = [
        subprocess.Popen([sys.executable, "-c", code, str(rank)], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=120)[0].strip() for rank in ranks]
    assert said == ["[[0, 1], [4, 5]]", "[[2, 3], [6, 7]]"]


# --- how well it shuffles


def surprise(counts: Any, expected: float) -> float:
    """How many standard deviations a chi-squared statistic is off (Wilson and Hilferty, 1931); below 5 is no wonder.
    Each row of counts (the last axis) has a fixed sum."""
    degrees = counts.size - counts.size // counts.shape[-1]
    chi = float(((counts - expected) ** 2 / expected).sum())
    return float(((chi / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / math.sqrt(2 / (9 * degrees)))


def shuffled(size: int, epoch: int, places: int | None = None) -> Any:
    return Permutation(size, 1, epoch)(np.arange(places or size, dtype=np.uint64)).astype(np.int64)


def test_all_shuffles_of_a_small_set_are_equally_likely() -> None:
    number = {order: index for index, order in enumerate(itertools.permutations(range(5)))}
    drawn = [number[tuple(shuffled(5, epoch).tolist())] for epoch in range(12_000)]
    assert abs(surprise(np.bincount(drawn, minlength=120), 100)) < 5


@pytest.mark.parametrize("size", [50_000, 65_537, 131_072, 200_003], ids=str)
def test_a_shuffle_is_one_and_mixes_the_classes_of_a_sorted_set(size: int) -> None:
    """Ten classes, one after the other in the set: each batch must have each as often as chance would."""
    order = shuffled(size, 0)
    assert np.array_equal(np.sort(order), np.arange(size))
    batches = (order * 10 // size)[: size // 256 * 256].reshape(-1, 256)
    counts = np.stack([np.bincount(batch, minlength=10) for batch in batches])
    assert abs(surprise(counts, 25.6)) < 5
    for lag in (1, 2, 16, 256):
        assert abs(np.corrcoef(order[:-lag], order[lag:])[0, 1]) * math.sqrt(size) < 5
    for other in (np.arange(size), shuffled(size, 1)):
        assert abs(np.corrcoef(order, other)[0, 1]) * math.sqrt(size) < 5


@pytest.mark.slow
@pytest.mark.parametrize("size", [65_537, 10**9], ids=str)
def test_first_places_of_many_epochs_are_anywhere_together(size: int) -> None:
    firsts = np.stack([shuffled(size, epoch, 2) for epoch in range(8_000)]) * 16 // size
    assert abs(surprise(np.bincount(firsts[:, 0] * 16 + firsts[:, 1], minlength=256), 8_000 / 256)) < 5


@pytest.mark.slow
@pytest.mark.parametrize("size", [10**9, 2**62], ids=str)
def test_a_huge_set_needs_no_memory(size: int) -> None:
    code = (
        "import resource, itertools; from slurmopt.training import ResumableSampler\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"sampler = ResumableSampler({size}, batch_size=64, rank=7, world_size=8)\n"
        f"sampler.load_state_dict({{**sampler.state_dict(), 'consumed': {size} // 2}})\n"
        "indices = sum(itertools.islice(sampler, 300), [])\n"
        f"assert len(set(indices)) == 300 * 64 and 0 <= min(indices) and max(indices) < {size}\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert int(said) < 64 * 1024, "KiB more than before"
