"""Renders what a node has measured as Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from slurmopt.run_folder.series.export_names import Measurement

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Line(NamedTuple):
    """One value of one series."""

    measurement: Measurement
    labels: Mapping[str, str]
    value: float


def exposition(lines: Iterable[Line]) -> str:
    """The text: each name once with its help and type, and the lines of a name together, as the format wants it."""
    by_name: dict[str, list[Line]] = {}
    for line in lines:
        by_name.setdefault(line.measurement.name, []).append(line)
    return "".join(_of_name(name, by_name[name]) for name in sorted(by_name))


def _of_name(name: str, lines: list[Line]) -> str:
    head = f"# HELP {name} {lines[0].measurement.about}\n# TYPE {name} gauge\n"
    return head + "".join(f"{name}{_labels(line.labels)} {_number(line.value)}\n" for line in lines)


def _labels(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    """As Go reads it: `inf` and `nan` of Python are understood too, and all digits are kept."""
    return repr(float(value)).replace("inf", "Inf").replace("nan", "NaN")
