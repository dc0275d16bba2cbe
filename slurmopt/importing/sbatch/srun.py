"""An `srun` in front of the training: whether slurmopt's own srun does the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from slurmopt.importing.sbatch.geometry import Geometry
from slurmopt.importing.sbatch.sbatch_options import split_option, takes_next

_HARMLESS = frozenset(
    [
        "label",
        "unbuffered",
        "kill-on-bad-exit",
        "verbose",
        "quiet",
        "wait",
        "output",
        "error",
        "open-mode",
        "job-name",
        "cpu-bind",
        "jobid",
    ]
)
"""slurmopt does this itself, or it concerns only what srun shows."""


@dataclass
class Srun:
    """The options of an srun."""

    length: int
    """The number of its words, itself included."""
    kept: list[str] = field(default_factory=list)
    """The options that slurmopt's own srun does not have."""
    dropped: list[str] = field(default_factory=list)
    gpus_per_task: int | None = None
    gpu_bind: str | None = None


def srun_of(words: list[str], known: Callable[[int], str | None], shape: Geometry) -> Srun:
    """The srun that begins with `words[0]`. `known(i)`: the text of word i without quotes and with known variables."""
    position, found = 1, Srun(1)
    while position < len(words) and words[position].startswith("-") and words[position] != "--":
        text = known(position) or words[position]
        name, value = split_option(text)
        if takes_next(text):
            position += 1
            value = (known(position) or words[position]) if position < len(words) else None
        _take(found, name, value, text, shape)
        position += 1
    found.length = position + 1 if words[position : position + 1] == ["--"] else position
    return found


def _take(found: Srun, name: str, value: str | None, text: str, shape: Geometry) -> None:
    same = {
        "nodes": shape.nodes,
        "ntasks": None if shape.uneven else shape.tasks,
        "ntasks-per-node": shape.tasks_per_node,
        "cpus-per-task": shape.cpus_per_task,
        "gpus-per-node": shape.gpus_per_node,
        "gpus": shape.gpus_per_node * shape.nodes,
        "export": "ALL",
    }
    if name in _HARMLESS or (name in same and value == str(same[name])) or (name == "gres" and _all_gpus(value, shape)):
        found.dropped.append(text)
    elif (
        name == "gpus-per-task"
        and value
        and value.isdecimal()
        and int(value) * shape.tasks_per_node == shape.gpus_per_node
    ):
        found.gpus_per_task = int(value)
    elif name == "gpu-bind" and value:
        found.gpu_bind = value
    else:
        found.kept.append(text if value is None or value in text else f"{text} {value}")


def _all_gpus(value: str | None, shape: Geometry) -> bool:
    kind, _, count = (value or "").partition(":")
    return kind == "gpu" and count.rpartition(":")[2] == str(shape.gpus_per_node)
