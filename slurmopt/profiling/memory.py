"""What a record of a rank's memory says, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slurmopt.errors import one_line
from slurmopt.profiling.wording import Sentence
from slurmopt.run_folder.json_values import number, text
from slurmopt.units import human_bytes, human_seconds

_LEAST_GROWN = 1024
"""Bytes a step that a line must gain, with a block in each step, to count as a leak."""
_FRAGMENTED = 0.2
"""Part of the reserved memory that is in pieces between others."""
_TOP = 5
_SETTING = "environment.variables.PYTORCH_ALLOC_CONF=expandable_segments:True"


@dataclass(frozen=True)
class Line:
    """What one stack holds."""

    stack: tuple[str, ...]
    size: float
    blocks: float
    grown: float
    grown_blocks: float
    """By how much both grew in the recorded steps."""

    @property
    def where(self) -> str:
        """The innermost frame."""
        return self.stack[0] if self.stack else "no line"


def sentences(record: Mapping[str, Any], step_seconds: float | None = None) -> list[Sentence]:
    """Of one rank, the most important first. Anybody may have edited the record."""
    steps = int(_number(record, "steps"))
    found = [*_out_of_memory(record), *_peaks(record), *_leaks(record, steps, step_seconds)]
    return [*found, *_fragments(record, steps), *_largest(record), *_modules(record), *_host(record, steps)]


def _out_of_memory(record: Mapping[str, Any]) -> Iterator[Sentence]:
    said = text(record.get("out_of_memory"))
    gpu = _part(record, "gpu")
    if said and gpu:
        allocated, reserved = _pair(gpu, "allocated")[1], _pair(gpu, "reserved")[1]
        yield Sentence(
            f"the GPU was full: torch had allocated {human_bytes(allocated)} and reserved {human_bytes(reserved)} of "
            f"{human_bytes(_number(gpu, 'total'))}",
            1.0,
            [one_line(said)[:300]],
        )


def _peaks(record: Mapping[str, Any]) -> Iterator[Sentence]:
    phases = _rows(record, "phases")
    if not phases:
        return
    top = max(phases, key=lambda row: _number(row, "most"))
    gpu = _part(record, "gpu") if record.get("measured") == "gpu" else None
    of = f" of {human_bytes(_number(gpu, 'total'))} of the GPU" if gpu else " of main memory (resident)"
    rows = [
        f"{_name(row)}: at most {human_bytes(_number(row, 'most'))}, "
        f"{human_bytes(_number(row, 'over'))} more than at its start"
        for row in phases
    ]
    most = _number(top, "most")
    yield Sentence(f"the most in use is {human_bytes(most)}{of}, in `{_name(top)}`", 1.0, rows)


def _leaks(record: Mapping[str, Any], steps: int, step_seconds: float | None) -> Iterator[Sentence]:
    """Lines of which each recorded step has left something behind."""
    if steps < 1:
        return
    for what, lines in _kinds(record):
        growing = [each for each in lines if each.stack and _is_leak(each, steps)]
        for each in sorted(growing, key=lambda one: -one.grown)[:_TOP]:
            full = _until_full(record, each.grown / steps, step_seconds) if what == "GPU memory" else ""
            yield Sentence(
                f"{each.where} leaves {human_bytes(each.grown / steps)} of {what} behind in each step{full}",
                0.5,
                [
                    f"{each.grown_blocks:.0f} more blocks after {steps} steps, {human_bytes(each.grown)}; "
                    f"now {each.blocks:.0f} with {human_bytes(each.size)}",
                    *(f"called from {one_line(frame)}" for frame in each.stack[1:4]),
                ],
            )


def _is_leak(line: Line, steps: int) -> bool:
    return line.grown_blocks >= steps and line.grown >= _LEAST_GROWN * steps


def _until_full(record: Mapping[str, Any], a_step: float, step_seconds: float | None) -> str:
    gpu = _part(record, "gpu")
    if not gpu or a_step <= 0:
        return ""
    steps = (_number(gpu, "free") + _pair(gpu, "reserved")[1] - _pair(gpu, "allocated")[1]) / a_step
    after = f", after {human_seconds(steps * step_seconds)}" if step_seconds else ""
    return f"; the GPU is full in {steps:,.0f} steps{after}"


def _fragments(record: Mapping[str, Any], steps: int) -> Iterator[Sentence]:
    gpu = _part(record, "gpu")
    if not gpu:
        return
    reserved, lost = _pair(gpu, "reserved"), _number(gpu, "fragments")
    allocated = _pair(gpu, "allocated")
    if reserved[1] and lost >= _FRAGMENTED * reserved[1]:
        yield Sentence(
            f"{lost / reserved[1]:.0%} of what torch has reserved is in pieces between tensors; "
            f"{_SETTING} makes one of them",
            lost / reserved[1],
            [f"the largest piece has {human_bytes(_number(gpu, 'largest_unused'))}"],
        )
    elif steps and reserved[1] - reserved[0] > 0 and allocated[1] <= allocated[0]:
        yield Sentence(
            f"torch reserved {human_bytes(reserved[1] - reserved[0])} more, and no more is allocated: that is no leak; "
            f"if it goes on, {_SETTING}",
            0.1,
        )


def _largest(record: Mapping[str, Any]) -> Iterator[Sentence]:
    for what, lines in _kinds(record):
        named = sorted((one for one in lines if one.stack), key=lambda one: -one.size)[:_TOP]
        if not named or what == "Python objects":
            continue
        unnamed = sum(one.size for one in lines if not one.stack)
        rows = [f"{one.where}: {human_bytes(one.size)} in {one.blocks:.0f} blocks" for one in named]
        if unnamed:
            rows.append(
                f"without a line: {human_bytes(unnamed)}, older than the recording, or of the backward pass or a "
                "library"
            )
        yield Sentence(f"the line that holds most {what} is {named[0].where}", 0.1, rows)


def _modules(record: Mapping[str, Any]) -> Iterator[Sentence]:
    if record.get("measured") != "gpu":
        return  # pages of main memory that a process has had before come and go unseen
    rows = [row for row in _rows(record, "modules") if _number(row, "kept") > 0][: 2 * _TOP]
    if rows:
        shown = [
            f"{_name(row)}: keeps {human_bytes(_number(row, 'kept'))}, needs {human_bytes(_number(row, 'over'))}"
            for row in rows
        ]
        yield Sentence(
            "what the forward pass of each module keeps for the backward pass, and needs meanwhile", 0.1, shown
        )
    elif record.get("compiled") is True:
        yield Sentence("modules are not told apart: torch.compile has compiled them", 0.0)


def _host(record: Mapping[str, Any], steps: int) -> Iterator[Sentence]:
    host = _part(record, "host")
    pss, workers, count = _pair(host, "pss"), _pair(host, "workers"), int(_number(host, "worker_count"))
    if not pss[1]:
        return
    below = f", and the {count} processes below it {human_bytes(workers[1])}" if count else ""
    rows = [
        f"{who} grew by {human_bytes(after - before)} in {steps} steps, pages included that they no longer share"
        for who, (before, after) in (("the rank", pss), ("its workers", workers))
        if steps and after > before
    ]
    yield Sentence(f"the rank has {human_bytes(pss[1])} of main memory{below} (PSS)", 0.0, rows)


def _kinds(record: Mapping[str, Any]) -> Iterator[tuple[str, list[Line]]]:
    gpu, host = _part(record, "gpu"), _part(record, "host")
    yield "GPU memory", _lines(gpu, "lines")
    yield "main memory in tensors", _lines(host, "tensors")
    yield "Python objects", _lines(host, "lines")


def _lines(part: Mapping[str, Any], name: str) -> list[Line]:
    return [
        Line(
            tuple(one_line(str(frame)) for frame in row["stack"]) if isinstance(row.get("stack"), list) else (),
            _number(row, "bytes"), _number(row, "blocks"), _number(row, "grown"), _number(row, "grown_blocks"),
        )
        for row in _rows(part, name)
    ]  # fmt: skip


def _rows(part: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    rows = part.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _part(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = record.get(name)
    return part if isinstance(part, dict) else {}


def _pair(part: Mapping[str, Any], name: str) -> tuple[float, float]:
    value = part.get(name)
    both = [number(each) or 0.0 for each in value[:2]] if isinstance(value, list) and len(value) == 2 else [0.0, 0.0]
    return both[0], both[1]


def _number(part: Mapping[str, Any], name: str) -> float:
    return number(part.get(name)) or 0.0


def _name(row: Mapping[str, Any]) -> str:
    return one_line(str(row.get("name")))
