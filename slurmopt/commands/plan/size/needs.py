"""What the runs of one name need of each thing that they ask for, what that saves, and whether less was enough."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from slurmopt.config.resources import MEMORY as MEMORY_KEYS
from slurmopt.config.resources import Resources
from slurmopt.planning.right_size import (
    GPU_MEMORY,
    LEAST,
    MEMORY,
    TIME,
    Gpus,
    Used,
    cores_needed,
    gpus_needed,
    memory_needed,
    quantile,
    time_needed,
    time_quantile,
)
from slurmopt.planning.right_size_check import Check, Trial, check
from slurmopt.report.run.used import UsedBy
from slurmopt.units import mebibytes, seconds, slurm_time

_GIB = 2**30
_WORTH = 0.8
"""More than this part of what is asked for is right."""
KEYS = TIME_KEY, MEMORY_KEY, CORES_KEY, GPUS_KEY = (
    "resources.time", "resources.memory", "resources.cpus_per_task", "resources.gpus_per_node",
)  # fmt: skip
UNITS = {GPUS_KEY: "GPU-hours", CORES_KEY: "core-hours", MEMORY_KEY: "GiB-hours"}
"""Of what is wasted, the dearest first."""


@dataclass(frozen=True)
class Need:
    """One key of the config."""

    key: str
    asked: float | None
    """In seconds, bytes, cores or GPUs; None where the site's default counts."""
    used: float | None
    enough: float
    override: str | None
    """None where what is asked for is right."""


@dataclass(frozen=True, kw_only=True)
class Sizing:
    """The runs of one name, or the points of a sweep."""

    name: str
    runs: list[UsedBy]
    """Those that have run, newest first."""
    resources: Resources
    """What the newest one asked for."""

    @property
    def used(self) -> list[Used]:
        return [run.used for run in self.runs if run.used is not None]

    @property
    def finished(self) -> int:
        return sum(run.finished for run in self.used)

    @property
    def needs(self) -> list[Need]:
        """Those that the runs tell."""
        found = (_time(self), _memory(self), _cores(self), _gpus(self))
        return [need for need in found if isinstance(need, Need)]

    @property
    def unknown(self) -> list[str]:
        """What cannot be told, and why."""
        found = (_time(self), _memory(self), _cores(self), _gpus(self))
        return [text for text in found if isinstance(text, str)]

    @property
    def wasted(self) -> list[dict[str, Any]]:
        """What was asked for beyond what is enough, times the hours that it was held. Time that a run does not use is
        given back when it ends: asking for less lets backfill start it earlier, and wastes nothing."""
        hours = sum(run.seconds for run in self.used) / 3600 * self.resources.most_nodes
        found = []
        for need in self.needs:
            if need.key in UNITS and need.asked is not None and need.asked > need.enough:
                over = (need.asked - need.enough) / (_GIB if need.key == MEMORY_KEY else 1)
                found.append({"key": need.key, "amount": over * hours, "unit": UNITS[need.key]})
        return found

    @property
    def gpus(self) -> Gpus | None:
        """What the runs did with their GPUs: the most that were busy, the mean utilisation, and the median of what it
        does not exceed for nine tenths of the time. None where it was not measured, or without GPUs."""
        found = [run.gpus for run in self.used if run.gpus is not None]
        if not found or not self.resources.gpus_per_node:
            return None
        return Gpus(
            each=max(one.each for one in found),
            busy=max(one.busy for one in found),
            mean=fmean(one.mean for one in found),
            high=median(one.high for one in found),
        )

    @property
    def overrides(self) -> list[str]:
        return [need.override for need in self.needs if need.override is not None]

    @property
    def checked(self) -> dict[str, Check]:
        """Key → what became of the newest run that asked for less of it."""
        found = {key: check([_trial(run, key) for run in self.runs]) for key in KEYS}
        return {key: one for key, one in found.items() if one is not None}

    def as_json(self) -> dict[str, Any]:
        """The keys are those of `slurmopt.commands.plan.size.main`."""
        return {
            "name": self.name,
            "runs": len(self.used),
            "finished": self.finished,
            "needs": [asdict(need) for need in self.needs],
            "unknown": self.unknown,
            "wasted": self.wasted,
            "gpus": None if self.gpus is None else asdict(self.gpus),
            "checked": [
                {"key": key, "run": one.trial.label, "asked": one.trial.asked, "before": one.before,
                 "used": one.trial.used, "enough": one.trial.had_enough}
                for key, one in self.checked.items()
            ],
        }  # fmt: skip


def asked(resources: Resources) -> dict[str, float]:
    """Key → seconds, or bytes, cores or GPUs of a node; without those that the site's defaults set."""
    found: dict[str, float] = {}
    if resources.time is not None:
        found[TIME_KEY] = float(seconds(resources.time))
    if resources.cpus_per_task is not None:
        found[CORES_KEY] = float(resources.cpus_per_task * resources.ranks_per_node)
    if resources.gpus_per_node:
        found[GPUS_KEY] = float(resources.gpus_per_node)
    if (memory := _asked_memory(resources, found.get(CORES_KEY))) is not None:
        found[MEMORY_KEY] = memory
    return found


def _asked_memory(resources: Resources, cores: float | None) -> float | None:
    """Of a node; `memory=0` is all of it, which nobody here knows."""
    each = [(resources.memory, 1.0), (resources.memory_per_gpu, float(resources.gpus_per_node)),
            (resources.memory_per_cpu, cores or 0.0)]  # fmt: skip
    found = [mebibytes(text) * 2**20 * count for text, count in each if text not in (None, "0")]
    return next((amount for amount in found if amount > 0), None)


def _trial(run: UsedBy, key: str) -> Trial:
    used, ask = run.used, None if run.resources is None else asked(run.resources).get(key)
    if used is None:
        return Trial(label=run.label, asked=ask, used=None, finished=False, was_short=False)
    amounts = {TIME_KEY: used.longest, MEMORY_KEY: used.memory, CORES_KEY: used.cores,
               GPUS_KEY: None}  # fmt: skip  # all GPUs of a run that asked for enough are busy
    short = {TIME_KEY: TIME, MEMORY_KEY: MEMORY, GPUS_KEY: GPU_MEMORY}.get(key)
    return Trial(
        label=run.label, asked=ask, used=amounts[key], finished=used.finished, was_short=short in used.short_of
    )


def _time(sizing: Sizing) -> Need | str:
    runs, finished = sizing.used, sizing.finished
    if (time := time_needed(runs)) is None:
        why = f"{finished} of {len(runs)} runs finished" if finished >= LEAST else f"{finished} runs finished"
        return f"{TIME_KEY}: {why}; {LEAST} or more tell, unless many others did not"
    return _need(sizing, TIME_KEY, time_quantile(runs), time, slurm_time(int(time)))


def _memory(sizing: Sizing) -> Need | str:
    if (memory := memory_needed(sizing.used)) is None:
        return f"{MEMORY_KEY}: it was measured in fewer than {LEAST} runs"
    other = [name for name in MEMORY_KEYS if name != "memory" and getattr(sizing.resources, name) is not None]
    value = " ".join([f"{math.ceil(memory / _GIB)}GB", *(f"resources.{name}=null" for name in other)])
    return _need(sizing, MEMORY_KEY, max(run.memory or 0.0 for run in sizing.used), memory, value)


def _cores(sizing: Sizing) -> Need | str:
    if (cores := cores_needed(sizing.used)) is None:
        return f"{CORES_KEY}: it was measured in fewer than {LEAST} runs"
    ranks = sizing.resources.ranks_per_node
    each = max(1, math.ceil(cores / ranks))
    used = quantile([run.cores for run in sizing.used if run.cores is not None])
    return _need(sizing, CORES_KEY, used, float(each * ranks), str(each))


def _gpus(sizing: Sizing) -> Need | str | None:
    """None where the runs ask for none."""
    each = sizing.resources.gpus_per_node
    if not each:
        return None
    busy = gpus_needed([run for run in sizing.used if run.gpus is not None and run.gpus.each >= each])
    if busy is None:
        return f"{GPUS_KEY}: the use of all {each} was measured in fewer than {LEAST} runs"
    value = str(busy) if busy or sizing.resources.gpu_type is None else f"{busy} resources.gpu_type=null"
    override = f"{GPUS_KEY}={value}" if busy < each else None
    return Need(GPUS_KEY, float(each), float(busy), float(min(busy, each)), override)


def _need(sizing: Sizing, key: str, used: float | None, enough: float, value: str) -> Need:
    ask = asked(sizing.resources).get(key)
    is_right = ask is not None and _WORTH * ask <= enough <= ask
    return Need(key, ask, used, enough, None if is_right else f"{key}={value}")


def waste_order(sizing: Sizing) -> tuple[float, ...]:
    """The sort key of names: GPU-hours first, then core-hours, then GiB-hours, the most first."""
    amounts = {each["unit"]: -each["amount"] for each in sizing.wasted}
    return tuple(amounts.get(unit, 0.0) for unit in UNITS.values())
