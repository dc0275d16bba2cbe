"""What the batches of a training cost, by what a rank has counted: `slurmopt.training.loader` measures it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurmopt.run_folder.json_values import number

_STEPPING = ("running", "communication", "input")
_SPARE = 1
NOTABLE = 0.03
"""A wait below this part of a step is not worth more workers."""


@dataclass(frozen=True, kw_only=True)
class LoaderCosts:
    """Means since the attempt began, in seconds."""

    wait: float
    """The wait of a step for input."""
    step: float
    """A step without that wait."""
    batches: float
    """Batches of a step."""
    fetch: float
    """What a batch takes the process that makes it, in the dataset."""
    fetch_cpu: float
    """Of that the part in which a CPU is used."""
    collate: float
    """In the collate function."""
    copy: float
    """The copy of a batch to the GPU; 0 where the loader makes none."""

    @property
    def waits(self) -> bool:
        """Whether a step waits notably."""
        return self.wait >= NOTABLE * (self.step + self.wait)

    def workers(self, cpus: float | None = None) -> int | None:
        """The workers that hide what the batches cost, on so many CPUs of a rank."""
        service, computed = self.fetch + self.collate, self.fetch_cpu + self.collate
        return workers_needed(service * self.batches, self.step, computed * self.batches, cpus)


def of(spent: object, counted: object) -> LoaderCosts | None:
    """The costs by the `spent` and `counted` of a heartbeat; None where the training has not measured them."""
    times, counts = _numbers(spent), _numbers(counted)
    steps, batches = counts.get("steps", 0.0), counts.get("loader_batches", 0.0)
    if not steps or not batches or "input" not in times:
        return None
    wait = times["input"] / steps
    return LoaderCosts(
        wait=wait,
        step=max(0.0, sum(times.get(name, 0.0) for name in _STEPPING) / steps - wait),
        batches=batches / steps,
        fetch=counts.get("loader_fetch", 0.0) / batches,
        fetch_cpu=counts.get("loader_fetch_cpu", 0.0) / batches,
        collate=counts.get("loader_collate", 0.0) / batches,
        copy=counts.get("loader_copy", 0.0) / batches,
    )


def workers_needed(service: float, step: float, computed: float | None, cpus: float | None) -> int | None:
    """How many workers hide `service` seconds of work behind each step of `step` seconds: service / step, rounded up,
    and one to spare; where `computed` of these seconds use a CPU, no more than `cpus` allow. None without a step."""
    if step <= 0:
        return None
    wanted = math.ceil(service / step) + _SPARE
    if cpus and computed:
        wanted = min(wanted, round(cpus * service / computed))
    return max(1, wanted)


def in_words(costs: LoaderCosts) -> str:
    """The costs in one line."""
    parts = f"{_ms(costs.fetch)} in the dataset, {_ms(costs.fetch_cpu)} of it on a CPU, {_ms(costs.collate)} in collate"
    copy = f"; its copy to the GPU {_ms(costs.copy)}" if costs.copy else ""
    waits = f"a step waits {_ms(costs.wait)} and takes {_ms(costs.step)} without"
    return f"{waits}; a batch takes a worker {_ms(costs.fetch + costs.collate)}: {parts}{copy}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _numbers(values: object) -> Mapping[str, float]:
    """The amounts among values that anybody may have edited."""
    found: dict[Any, float | None] = {}
    if isinstance(values, dict):
        found = {name: number(value) for name, value in values.items()}
    return {name: value for name, value in found.items() if value is not None and 0 <= value < 1e15}
