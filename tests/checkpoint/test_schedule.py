"""When saves are due: what their cost is measured by, and what becomes of one for which there is no room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from slurmopt.checkpoint import Checkpointer, checkpointer
from slurmopt.checkpoint.interval import Interval
from slurmopt.checkpoint.schedule import Schedule
from slurmopt.checkpoint.snapshot import snapshots
from slurmopt.checkpoint.tiers import tiers_of
from slurmopt.config.checkpoint import checkpoint_of
from slurmopt.run_folder.layout import RunFolder

Attempt = Callable[..., Any]


def _schedule(folder: Path, now: list[float], **shared: Any) -> Schedule:
    return Schedule(tiers_of(checkpoint_of({"shared": shared}), RunFolder(folder)), 86400.0, lambda: now[0])


@pytest.mark.parametrize("every", [500, "50s"])
def test_a_save_without_room_is_made_up_for_and_seldom_asked_for(folder: Path, every: int | str) -> None:
    """Two ranks, and a slow tier: from step 500 to step 1499 no buffer is free."""
    now = [0.0]
    ranks = [_schedule(folder, now, every=every) for _ in range(2)]
    saved, asked = [], 0
    for step in range(1, 1700):
        now[0] += 0.1
        silent = {rank.is_before_next_check(step) for rank in ranks}
        assert len(silent) == 1, "all ranks ask at the same steps"
        if silent == {True}:
            continue
        asked += 1
        decision = ranks[0].decide(step, force=False)
        for rank in ranks:
            if decision.due and 500 <= step < 1500:
                rank.postpone(decision, step)
                continue
            rank.follow(decision)
            if decision.due:
                rank.saved(decision.due, step, 0.01)
        if decision.due and not 500 <= step < 1500:
            saved.append(step)
    assert 1500 <= saved[0] <= 1500 + 1000 // 8, "it is not left out until the next multiple"
    assert asked < 100, "not an exchange at each step"


def test_auto_learns_neither_from_the_first_save_nor_from_steps_that_are_still_queued(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated: a device whose queue takes 100 s each time, by a clock that nothing else moves but the first plan."""
    now, measured = [0.0], []
    saved, plan = Interval.saved, checkpointer.Snapshots.take

    def synchronize() -> None:
        now[0] += 100.0

    def take(self: Any, *arguments: Any) -> Any:
        now[0] += 7.0 if self._plan is None else 0.5
        return plan(self, *arguments)

    def note(self: Any, step: int, at: float, blocked: float, durable: float | None = None) -> None:
        measured.append(blocked)
        saved(self, step, at, blocked, durable)

    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(snapshots, "pin", lambda arena: None)
    monkeypatch.setattr(checkpointer, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(checkpointer.Snapshots, "take", take)
    monkeypatch.setattr(checkpointer.Snapshots, "prepare", lambda self, state: None)
    monkeypatch.setattr(Interval, "saved", note)
    with Checkpointer({"shared": {"every": "auto"}}, attempt(0)) as saving:
        saving.restore({"w": torch.zeros(10)})
        for step in (1, 2, 3):
            assert saving.save(step, {"w": torch.zeros(10)}, force=True)
    assert str(measured) == "[nan, 0.5, 0.5]"
