"""Reads the output of the programs of nccl-tests.

The table is that of `writeResultHeader` and `writeBenchmarkLineBody` in `src/util.cu` of NVIDIA/nccl-tests; earlier
versions call the column `#wrong` `error` and leave `redop` and `root` out for some collectives, so columns are found by
their names. Times are microseconds there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from slurmopt.collectives.definitions import COLLECTIVES
from slurmopt.collectives.recording import LEAST, LIMIT, NCCL_TESTS, Recording, Row
from slurmopt.errors import InputError, one_line

_OF_PROGRAM = {collective.program: name for name, collective in COLLECTIVES.items()}
_PROGRAM = re.compile(r"# Collective test (?:starting|concluded): (?:\S*/)?(\w+)")
_RANK = re.compile(r"#\s+Rank\s+(\d{1,9}) .*?\bon\s+(\S+) device\s+\d+ \[[^\]]*\]\s*(.*)")
_ITERATIONS = re.compile(r"# nThread .*?(?<!warmup )(?<!agg )\biters: (\d{1,9})\b")
_TIMES = ("time", "cputime")
_WRONG = ("#wrong", "error")
_BEGINS = ("# nccl-tests version ", "# Collective test starting", "# nThread ")
_LARGEST_LINE = 10_000


@dataclass
class _Output:
    collective: str | None = None
    world: int = 0
    nodes: list[str] = field(default_factory=list)
    device: str = ""
    iterations: int = 0
    columns: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


def is_output(text: str) -> bool:
    """Whether this looks like the output of nccl-tests, perhaps with lines of mpirun before it."""
    return _PROGRAM.search(text) is not None or ("# nThread " in text and "busbw" in text)


def read(text: str, place: str, collective: str | None = None) -> Recording:
    """The rows of one output, or of several one after the other. `collective` is that of an output of an earlier
    version, which does not name its program. InputError where there is no table."""
    found, current = [], _Output(collective)
    for line in text.splitlines():
        if line.startswith(_BEGINS) and (current.rows or current.columns):
            found.append(current)
            current = _Output(collective)
        _take(current, line[:_LARGEST_LINE], place)
    found.append(current)
    rows = [row for output in found for row in output.rows]
    if not rows:
        raise InputError(f"{place}: no table of nccl-tests in it{_first_failure(text)}")
    last = found[-1] if found[-1].rows else found[0]
    nodes = last.nodes or ["unknown"]
    return Recording(rows[0].world, nodes, "nccl", last.device, rows=rows)


def _take(output: _Output, line: str, place: str) -> None:
    if match := _PROGRAM.match(line):
        _take_program(output, match[1], place)
    elif match := _RANK.match(line):
        output.world = max(output.world, int(match[1]) + 1)
        output.device = match[3].strip() or output.device
        if match[2] not in output.nodes:
            output.nodes.append(match[2])
    elif match := _ITERATIONS.match(line):
        output.iterations = int(match[1])
    elif line.startswith("#") and "busbw" in line:
        output.columns = line[1:].split()
    elif output.columns and re.match(r"\s*\d+\s+\d+\s", line):
        output.rows += _rows(output, line.split(), place)


def _take_program(output: _Output, program: str, place: str) -> None:
    if program not in _OF_PROGRAM:
        raise InputError(f"{place}: {program} is no collective of this benchmark; valid: {', '.join(_OF_PROGRAM)}")
    output.collective = _OF_PROGRAM[program]


def _rows(output: _Output, words: Sequence[str], place: str) -> Iterator[Row]:
    """The out-of-place row and the in-place row of one line. Without a root, earlier versions leave that empty."""
    if output.collective is None:
        raise InputError(
            f"{place}: the output does not say which collective it is; valid: that of nccl-tests 2.17.2 or later, or a "
            "file with all_reduce, all_gather, … in its name"
        )
    if output.world < 2:
        raise InputError(f"{place}: one rank: nothing was communicated; valid: the output for at least two ranks")
    columns = output.columns
    if len(words) < len(columns) and "root" in columns:
        columns = [name for name in columns if name != "root"]
    starts = [at for at, name in enumerate(columns) if name in _TIMES]
    for number, start in enumerate(starts[:2]):
        ends = [at for at in range(start, len(columns)) if columns[at] in _WRONG]
        try:
            time, wrong = float(words[start]), words[ends[0]] if ends else "N/A"
            count = None if wrong == "N/A" else int(float(wrong))
            size = int(words[0])
            _check_limit(size, time, count or 0)
        except (IndexError, ValueError, OverflowError) as error:
            raise InputError(f"{place}: a damaged line of nccl-tests: {one_line(' '.join(words))[:100]}") from error
        if size > 0 and time / 1e6 >= LEAST:
            yield Row(output.collective, size, time / 1e6, output.world, output.iterations, count, "", NCCL_TESTS,
                      number == 1)  # fmt: skip


def _check_limit(*values: float) -> None:
    """Raises ValueError for numbers that no row has."""
    if max(values) >= LIMIT:
        raise ValueError("too large")


def _first_failure(text: str) -> str:
    """What a program of nccl-tests says when it fails: ` Test CUDA failure …`, `… Test failure common.cu:…`."""
    for line in text.splitlines():
        if "failure" in line or "rror" in line:
            return f": {one_line(line.strip())[:200]}"
    return ""
