"""How far the formulas were off for runs that have been: what they say of a run's own config, and what it measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from slurmopt.config.plan import Plan
from slurmopt.config.resources import Resources
from slurmopt.errors import InputError, SlurmoptError
from slurmopt.estimates.experiment import Experiment, experiment
from slurmopt.planning.calibration import interval
from slurmopt.planning.memory.peak import RUNTIME
from slurmopt.planning.ranges import Range
from slurmopt.planning.shapes import Calibration, Shape, shapes
from slurmopt.run_folder.heartbeat import Heartbeat, read
from slurmopt.run_folder.json_values import as_int, number
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import stored_config
from slurmopt.runs.all_runs import all_runs, created
from slurmopt.runs.ownership import owner_of

_MOST = 200
"""Runs that are looked at, newest first."""
_LEAST_STEPS = 10
"""Steps after which a pace counts: the first ones are slow."""


@dataclass(frozen=True)
class Scored:
    """A run, what the formulas say of it, and what it measured."""

    run: RunFolder
    asked: Experiment
    shape: Shape
    peak: float | None
    """Bytes that torch had reserved on the rank that needed most; None where it was not measured."""
    step: float | None
    """Seconds of a step."""

    @property
    def memory_ratio(self) -> float | None:
        """Measured by the middle of the estimated peak. What torch reserves is without context and NCCL's buffers."""
        if self.peak is None or self.shape.memory is None:
            return None
        return (self.peak + RUNTIME.middle) / self.shape.memory.peak.middle

    @property
    def step_ratio(self) -> float | None:
        """Measured by the middle of the estimated time."""
        if self.step is None or self.shape.step is None:
            return None
        return self.step / self.shape.step.total.middle


def scored(run: RunFolder) -> Scored | None:
    """None for a run whose config has no plan, or of which nothing was measured."""
    if not stored_config.quick_group(run, "plan"):
        return None
    return scored_as(run, stored_config.whole(run))


def scored_as(run: RunFolder, config: Mapping[str, Any]) -> Scored | None:
    """The same for a config that has been read."""
    try:
        plan, resources = _group(Plan, config.get("plan")), _group(Resources, config.get("resources"))
        if plan.model is None:
            return None
        asked = experiment(plan, resources, config)
        attempt, beats = _latest(run)
        if attempt is None:
            return None
        shape = _as_it_ran(asked, len(beats))
    except (SlurmoptError, AttributeError, TypeError, ValueError, ArithmeticError):
        return None  # an edited config, or one of another version: nothing can be learned from it
    if shape is None:
        return None
    found = Scored(run, asked, shape, _peak(beats), _step(beats))
    return None if found.peak is None and found.step is None else found


def calibration(asked: Experiment, folder: Path) -> Calibration:
    """What the user's earlier runs teach of this experiment: those of the same model on the same GPU, else all of that
    GPU; nothing for fewer than two."""
    return learned(asked, scored_runs(folder))


def scored_runs(folder: Path) -> list[Scored]:
    """The newest of the user's own runs in `folder` that teach something."""
    try:
        newest = own_runs(folder)
    except InputError:
        return []
    return [one for run in newest if (one := scored(run)) is not None]


def learned(asked: Experiment, found: list[Scored]) -> Calibration:
    """What these runs teach of an experiment, as `calibration` does."""
    same_gpu = [one for one in found if one.asked.cluster.gpu == asked.cluster.gpu]
    same_model = [one for one in same_gpu if one.asked.model.name == asked.model.name]
    memory = _learned([one.memory_ratio for one in same_model], [one.memory_ratio for one in same_gpu])
    step = _learned([one.step_ratio for one in same_model], [one.step_ratio for one in same_gpu])
    return Calibration(memory=memory, step=step, runs=len(same_model) if len(same_model) > 1 else len(same_gpu))


def own_runs(folder: Path) -> list[RunFolder]:
    """The newest of this user's own runs: what others have written teaches nothing. Raises InputError."""
    newest = sorted(all_runs(folder), key=created, reverse=True)[:_MOST]
    return [run for run in newest if owner_of(run) is None]


def _learned(*choices: Iterable[float | None]) -> Range | None:
    for ratios in choices:
        if (found := interval([ratio for ratio in ratios if ratio is not None])) is not None:
            return found
    return None


def _group(kind: Any, value: Any) -> Any:
    known = {item.name for item in fields(kind) if item.init}
    return kind(**{key: item for key, item in (value or {}).items() if key in known})


def _latest(run: RunFolder) -> tuple[int | None, list[Heartbeat]]:
    """The last attempt that made steps, and its heartbeats."""
    for attempt in reversed(run.attempts()):
        beats = [beat for rank in run.ranks_with_heartbeats(attempt) if (beat := read(run.heartbeat(attempt, rank)))]
        if any(beat.step is not None for beat in beats):
            return attempt, beats
    return None, []


def _as_it_ran(asked: Experiment, ranks: int) -> Shape | None:
    nodes = max(1, ranks // asked.cluster.gpus_per_node)
    found = shapes(asked.model, asked.work, asked.cluster, asked.as_it_is(nodes), Calibration())
    return found[0] if found and found[0].memory is not None else None


def step_of(run: RunFolder, least_steps: int) -> float | None:
    """Seconds of a step of the last attempt; None before it has made so many after its first one."""
    attempt, beats = _latest(run)
    return None if attempt is None else _step(beats, least_steps)


def _peak(beats: list[Heartbeat]) -> float | None:
    counted = [beat.counted for beat in beats if isinstance(beat.counted, dict)]
    peaks = [number(each.get("memory_reserved_peak")) for each in counted]
    return max((peak for peak in peaks if peak is not None and peak > 0), default=None)


def _step(beats: list[Heartbeat], least_steps: int = _LEAST_STEPS) -> float | None:
    first = min(beats, key=lambda beat: as_int(beat.rank) or 0)
    now, began = number(first.step_time), number(first.first_step_time)
    step, before = as_int(first.step), as_int(first.first_step)
    if now is None or began is None or step is None or before is None or step - before < least_steps:
        return None
    return (now - began) / (step - before) if now > began else None
