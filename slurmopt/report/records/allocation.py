"""Tells what an attempt was allocated: its nodes, and the GPUs or CPUs of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from slurmopt.run_folder.json_values import as_int, text
from slurmopt.run_folder.series.series import Series
from slurmopt.slurm.hostlist import expand

_MOST = 65536
"""GPUs or CPUs of a node."""
_PER_NODE = re.compile(r"(\d{1,6})(?:\(x(\d{1,6})\))?")


@dataclass(frozen=True)
class Allocation:
    """Node → its GPUs; its CPUs, where the attempt had no GPU."""

    units: dict[str, float]
    unit: str
    notes: tuple[str, ...] = ()

    def node_of(self, name: str) -> str:
        """The node that a rank means by `name`, which may have a domain that Slurm's name lacks, or lack one."""
        if name in self.units:
            return name
        return next((node for node in self.units if _short(node) == _short(name)), name)


def allocation(
    nodes: str | None,
    event: Mapping[str, Any],
    resources: Mapping[str, Any],
    series: Mapping[str, Series],
    reporting: Iterable[str],
) -> Allocation:
    """The allocation of an attempt.

    `nodes`: its hostlist. `event`: its `attempt` event, whose `gpus` and `cpus` the batch shell counted on the first
    node. `resources`: that group of its config, which tells where the event does not. `series`: of its nodes, by name.
    `reporting`: the nodes from which ranks reported, for attempts whose event is lost.
    """
    names, notes = _names(nodes, reporting)
    on_first = as_int(event.get("gpus"))
    configured = as_int(resources.get("gpus_per_node")) or 0
    is_local = (text(event.get("job")) or "").startswith("local-")  # without Slurm the machine's GPUs are all visible
    count = configured if on_first is None or (is_local and configured) else on_first
    if count <= 0:
        return _of_cpus(names, event, resources, notes)
    if on_first is None:
        notes.append("its GPUs are those of the config: the journal does not tell them")
    seen = _seen(names, series, count)
    return Allocation({name: float(min(seen.get(name, count), _MOST)) for name in names}, "GPU", tuple(notes))


def _names(nodes: str | None, reporting: Iterable[str]) -> tuple[list[str], list[str]]:
    try:
        names = list(dict.fromkeys(expand(nodes or "")))
    except ValueError:
        names = []
    if names:
        return names, []
    names = sorted(set(reporting))
    return names or ["?"], ["its nodes are not in the journal: they are those whose ranks reported"]


def _seen(names: list[str], series: Mapping[str, Series], count: int) -> dict[str, int]:
    """The GPUs that samplers found on the nodes, where on the first node that is what Slurm allocated: elsewhere a
    sampler sees the GPUs of other jobs too."""
    found = {_short(name): gpus for name, one in series.items() if (gpus := _gpus(one))}
    by_name = {name: found[_short(name)] for name in names if _short(name) in found}
    return by_name if by_name.get(names[0]) == count else {}


def _gpus(series: Series) -> int:
    gpus = series.facts.get("gpus")
    return len(gpus) if isinstance(gpus, list) else 0


def _of_cpus(names: list[str], event: Mapping[str, Any], resources: Mapping[str, Any], notes: list[str]) -> Allocation:
    counts = _per_node(text(event.get("cpus")) or "", len(names))
    if counts is None:
        ranks = as_int(resources.get("tasks_per_node")) or 1
        per_rank = as_int(resources.get("cpus_per_task")) or 1
        counts = [ranks * per_rank] * len(names)
        notes.append("its CPUs are those of the config: the journal does not tell them")
    units = {name: float(min(max(count, 0), _MOST)) for name, count in zip(names, counts, strict=True)}
    return Allocation(units, "CPU", tuple(notes))


def _per_node(cpus: str, nodes: int) -> list[int] | None:
    """The CPUs of each node from SLURM_JOB_CPUS_PER_NODE, such as `64(x2),32`; a single number is that of each."""
    found: list[int] = []
    for item in cpus.split(","):
        match = _PER_NODE.fullmatch(item.strip())
        if match is None:
            return None
        found += [int(match[1])] * min(int(match[2] or 1), nodes)
        if len(found) > nodes:
            return None
    return found * nodes if len(found) == 1 else found if len(found) == nodes else None


def _short(name: str) -> str:
    return name.partition(".")[0]
