"""How many nodes, tasks and GPUs the directives ask for, in the terms of `resources`: all of them for each node."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from slurmopt.errors import InputError
from slurmopt.importing.remarks import Remarks
from slurmopt.importing.sbatch.directives import Directive

NAMES = (
    "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "gres", "gpus", "gpus-per-node", "gpus-per-task",
    "ntasks-per-gpu",
)  # fmt: skip
_GPUS = re.compile(r"(?:([A-Za-z][\w.-]*):)?(\d{1,6})")


@dataclass
class Geometry:
    """The shape of the job."""

    nodes: int = 1
    most_nodes: int = 1
    tasks_per_node: int = 1
    cpus_per_task: int | None = None
    gpus_per_node: int = 0
    gpu_type: str | None = None
    gpus_per_task: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    total: int | None = None
    """The number of tasks, where it is not the same for each node."""
    uneven: str = ""
    """What a number for each node cannot express, for a person."""

    @property
    def tasks(self) -> int:
        return self.tasks_per_node * self.nodes


def geometry(given: dict[str, Directive], remarks: Remarks) -> Geometry:
    """The shape that these directives ask for. InputError where a number is none."""
    shape = Geometry()
    if item := given.get("nodes"):
        shape.nodes, shape.most_nodes = _nodes(item)
        remarks.moved(item.line, item.text, f"resources.nodes: {nodes_value(shape)}")
    _tasks(shape, given, remarks)
    if item := given.get("cpus-per-task"):
        shape.cpus_per_task = _number(item)
        remarks.moved(item.line, item.text, f"resources.cpus_per_task: {shape.cpus_per_task}")
    _gpus(shape, given, remarks)
    return shape


def nodes_value(shape: Geometry) -> int | str:
    return shape.nodes if shape.nodes == shape.most_nodes else f"{shape.nodes}-{shape.most_nodes}"


def _nodes(item: Directive) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", item.value or "")
    if match is None or not int(match[1]) or int(match[2] or match[1]) < int(match[1]):
        raise InputError(f"line {item.line}: {item.text!r}: valid: a number of nodes, or a range such as 2-4")
    return int(match[1]), int(match[2] or match[1])


def _tasks(shape: Geometry, given: dict[str, Directive], remarks: Remarks) -> None:
    total, each = given.get("ntasks"), given.get("ntasks-per-node")
    if each:
        shape.tasks_per_node = _number(each)
    if total:
        count = _number(total)
        if each and "nodes" not in given:
            shape.nodes = shape.most_nodes = -(-count // shape.tasks_per_node)
        elif not each:
            shape.tasks_per_node = -(-count // shape.nodes)
        if count != shape.tasks:
            shape.total = count
            shape.uneven = f"{count} tasks on {shape.nodes} nodes are not the same number on each"
    to = f"resources.tasks_per_node: {shape.tasks_per_node}"
    for item in filter(None, (total, each)):
        alone = item is total and not each and "nodes" not in given and shape.tasks > 1
        note = " (all on one node; Slurm could have spread them: set resources.nodes for that)" if alone else ""
        remarks.moved(item.line, item.text, to + note)


def _gpus(shape: Geometry, given: dict[str, Directive], remarks: Remarks) -> None:
    for name, share in (("gpus", "job"), ("gpus-per-node", "node"), ("gpus-per-task", "task")):
        if item := given.get(name):
            shape.gpu_type, count = _typed(item, item.value or "")
            shape.gpus_per_node = _per_node(shape, count, share)
            shape.gpus_per_task = count if share == "task" else shape.gpus_per_task
            remarks.moved(item.line, item.text, _gpus_text(shape))
    if item := given.get("gres"):
        _gres(shape, item, remarks)
    if item := given.get("ntasks-per-gpu"):
        shape.tasks_per_node = _number(item) * max(1, shape.gpus_per_node)
        remarks.moved(item.line, item.text, f"resources.tasks_per_node: {shape.tasks_per_node}")


def _per_node(shape: Geometry, count: int, share: str) -> int:
    if share == "task":
        return count * shape.tasks_per_node
    if share == "job":
        if count % shape.nodes:
            shape.uneven = f"{count} GPUs on {shape.nodes} nodes are not the same number on each"
        return -(-count // shape.nodes)
    return count


def _gres(shape: Geometry, item: Directive, remarks: Remarks) -> None:
    others, to = [], []
    for word in (item.value or "").removeprefix("gres/").split(","):
        word = word.strip().removeprefix("gres/").replace("=", ":")
        if word.partition(":")[0] != "gpu":
            others.append(word)
            continue
        shape.gpu_type, shape.gpus_per_node = _typed(item, word.partition(":")[2] or "1")
        to.append(_gpus_text(shape))
    if others and (value := ",".join(filter(None, others))):
        shape.extra["gres"] = value
        to.append(f"resources.extra.gres: {value}")
    remarks.moved(item.line, item.text, ", ".join(to))


def _gpus_text(shape: Geometry) -> str:
    kind = f", resources.gpu_type: {shape.gpu_type}" if shape.gpu_type else ""
    return f"resources.gpus_per_node: {shape.gpus_per_node}{kind}"


def _typed(item: Directive, text: str) -> tuple[str | None, int]:
    """`a100:4`, `4`, or a type alone, which is one."""
    text = re.sub(r"\(.*\)$", "", text)
    match = _GPUS.fullmatch(text)
    if match is not None:
        return (match[1] if int(match[2]) else None), int(match[2])
    if re.fullmatch(r"[A-Za-z][\w.-]*", text):
        return text, 1
    raise InputError(f"line {item.line}: {item.text!r}: valid: a number of GPUs, or TYPE:NUMBER")


def _number(item: Directive) -> int:
    if not re.fullmatch(r"\d{1,6}", item.value or "") or not int(item.value or 0):
        raise InputError(f"line {item.line}: {item.text!r}: valid: a whole number from 1")
    return int(item.value or 0)
