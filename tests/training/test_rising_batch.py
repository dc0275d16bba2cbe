"""Global batches that change: the same steps on any number of ranks and after any restart."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from slurmopt.errors import JobError
from slurmopt.training import NoiseScale, ResumableSampler, Steps, schedules

SAMPLES = 500
RISING = schedules.rising_batch(64, start=8, over=900)


def sampler(rank: int = 0, world_size: int = 1, **options: Any) -> ResumableSampler:
    words = {"batch_size": 4, "global_batch": RISING, "seed": 3, "rank": rank, "world_size": world_size, **options}
    return ResumableSampler(SAMPLES, **words)


def steps_of(one: ResumableSampler, most: int = 10**6) -> list[list[int]]:
    """The samples of each step that this rank takes, over three epochs."""
    found: list[list[int]] = [[]]
    loader = DataLoader(TensorDataset(torch.arange(SAMPLES)), batch_sampler=one)
    while one.epoch < 3:
        for micro in one.accumulate(loader):
            found[-1] += micro.batch[0].tolist()[: micro.samples]
            if micro.last:
                if len(found) == most:
                    return found
                found.append([])
    return found[:-1]


def test_global_batches_rise_to_their_end() -> None:
    sizes = [len(step) for step in steps_of(sampler())]
    full = [size for size in sizes if size % 8 == 0]
    assert sizes[0] == 8
    assert sorted(full) == full, "none is smaller than the one before, but for the last of an epoch"
    assert full[-1] == 64
    assert set(full) == {8, 16, 24, 32, 40, 48, 56, 64}
    assert sum(sizes) == 3 * SAMPLES
    assert [RISING(seen) for seen in (0, 112, 113, 899, 900, 10**9)] == [8, 8, 16, 64, 64, 64]


def test_the_length_of_an_epoch_is_the_number_of_its_steps() -> None:
    one = sampler()
    lengths = []
    for epoch in range(3):
        one.set_epoch(epoch)
        lengths.append(len(one))
    assert sum(lengths) == len(steps_of(sampler()))
    assert lengths[0] > lengths[1] > lengths[2]


@pytest.mark.parametrize("world_size", [2, 4])
def test_any_number_of_ranks_takes_the_same_steps(world_size: int) -> None:
    alone = [sorted(step) for step in steps_of(sampler())]
    ranks = [steps_of(sampler(rank, world_size)) for rank in range(world_size)]
    assert [sorted(itertools.chain.from_iterable(parts)) for parts in zip(*ranks, strict=True)] == alone


@pytest.mark.parametrize("at", [1, 40, 57])
def test_a_restart_goes_on_with_the_same_steps(at: int) -> None:
    whole = steps_of(sampler())
    one = sampler()
    begun = steps_of(one, most=at)
    again = sampler()
    again.load_state_dict(one.state_dict())
    assert begun + steps_of(again) == whole


def test_a_size_that_was_chosen_between_epochs_is_kept() -> None:
    one = sampler(global_batch=10)
    steps_of(one, most=3)
    with pytest.raises(JobError, match="30 samples of epoch 0 are consumed; call it between epochs"):
        one.set_global_batch(20)
    one.set_epoch(1)
    one.set_global_batch(20)
    again = sampler(global_batch=10)
    again.load_state_dict(one.state_dict())
    assert [each.global_batch for each in (one, again)] == [20, 20]
    assert steps_of(again) == steps_of(one)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sampler(global_batch=lambda seen: 2.5), "the global batch after 0 samples is 2.5"),
        (lambda: sampler(global_batch=lambda seen: 0), "the global batch after 0 samples is 0"),
        (lambda: sampler(global_batch=None).set_global_batch(4), "the sampler has no global_batch"),
        (lambda: sampler().set_global_batch(0), "global_batch is 0; valid"),
        (lambda: schedules.rising_batch(64, start=0, over=5), "start is 0; valid"),
        (lambda: schedules.rising_batch(64, start=60, over=5), "from 60 to 64 by 60"),
        (lambda: schedules.rising_batch(8, start=64, over=5), "from 64 to 8"),
    ],
    ids=["fraction", "none", "without", "zero", "start", "steps", "falls"],
)
def test_what_is_no_size_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(JobError, match=said):
        make()


def test_the_noise_scale_chooses_a_size_only_once_it_is_known() -> None:
    torch.manual_seed(1)
    model, noise = nn.Linear(4, 1), NoiseScale(every=1)
    steps = Steps(model, torch.optim.SGD(model.parameters(), lr=0.0), noise=noise)
    assert noise.batch(8, 1024) == 8
    one = ResumableSampler(4096, batch_size=8, global_batch=64, seed=1)
    x = torch.randn(4096, 4)
    data = TensorDataset(x, x.sum(1, keepdim=True) + 5 * torch.randn(4096, 1))
    for micro in one.accumulate(DataLoader(data, batch_sampler=one)):
        steps.run(lambda batch: (model(batch[0]) - batch[1]).square().mean(), micro)
    found = noise.estimate()
    assert found is not None
    assert found.low >= 16, "or the test says nothing"
    assert noise.batch(8, 1024) <= found.low < 2 * noise.batch(8, 1024)
    assert noise.batch(8, 8) == 8
