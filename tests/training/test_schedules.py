"""Learning rate schedules as functions of steps, and as torch's own schedulers compute them."""

from __future__ import annotations

import math

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR

from slurmopt.errors import JobError
from slurmopt.training import Steps, schedules


def optimizer(*rates: float) -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates])


@pytest.mark.parametrize(
    ("schedule", "of_torch"),
    [
        (schedules.cosine(50, floor=0.1), lambda sgd: CosineAnnealingLR(sgd, 50, eta_min=0.1)),
        (schedules.linear(50, floor=0.25), lambda sgd: LinearLR(sgd, 1.0, 0.25, 50)),
    ],
)
def test_as_torch_computes_it(schedule, of_torch) -> None:  # type: ignore[no-untyped-def]
    sgd = optimizer(1.0)
    theirs = of_torch(sgd)
    for step in range(50):
        assert schedule(step) == pytest.approx(sgd.param_groups[0]["lr"], abs=1e-9)
        sgd.step()
        theirs.step()


def test_warm_up_ends_at_the_full_rate() -> None:
    for schedule in (
        schedules.constant(warmup=4),
        schedules.cosine(20, warmup=4),
        schedules.wsd(20, warmup=4, decay=5),
    ):
        assert [schedule(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    wsd = schedules.wsd(20, warmup=4, decay=5, floor=0.5)
    assert [wsd(step) for step in (10, 15, 20, 90)] == [1.0, 1.0, 0.5, 0.5]
    assert wsd(16) == pytest.approx(0.9)


def test_the_rate_of_each_group_after_a_restart_and_a_skipped_step() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    rates = []
    for begins in (0, 3):
        sgd = torch.optim.SGD(model.parameters(), lr=0.5)
        steps = Steps(model, sgd, schedule=schedules.linear(10))
        if begins:
            steps.load_state_dict(
                {
                    "count": 3,
                    "taken": 3,
                    "behind": 0,
                    "bad": {"total": 0, "in_a_row": 0},
                    "norms": [],
                    "scale": {},
                    "schedule": {"count": 3},
                }
            )
        for step in range(begins, 6):
            if step == 4:
                steps.backward(model(torch.ones(1)).sum() * math.nan)
            rates.append((step, sgd.param_groups[0]["lr"]))
            steps.backward(model(torch.ones(1)).sum())
    assert rates[:6] == [(step, pytest.approx(0.5 * (1 - step / 10))) for step in range(6)]
    assert rates[6:] == rates[3:6]


def test_rates_for_another_batch() -> None:
    assert schedules.for_batch(1024, 256, "linear") == 4.0
    assert schedules.for_batch(1024, 256, "sqrt") == 2.0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: schedules.cosine("100"), "total is '100'; valid: a number of steps"),  # type: ignore[arg-type]
        (lambda: schedules.cosine(0), "total is 0; valid: a number of steps"),
        (lambda: schedules.cosine(10, warmup=11), "warmup 11 is more than total 10"),
        (lambda: schedules.linear(10, floor=2), "floor is 2; valid: 0 to 1"),
        (lambda: schedules.wsd(10, warmup=6, decay=6), "warmup 6 and decay 6 are more than total 10"),
        (lambda: schedules.cosine(math.nan), "total is nan"),
        (lambda: schedules.for_batch(1, 0, "linear"), "a global batch of 0 samples"),
        (lambda: schedules.for_batch(1, 1, "cubic"), "rule is 'cubic'; valid: linear"),
    ],
)
def test_numbers_that_make_no_schedule(make, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(JobError, match=said.replace("(", r"\(")):
        make()
