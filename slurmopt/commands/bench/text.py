"""A recording for people, and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from statistics import median
from typing import Any

from slurmopt.collectives.comparison import Comparison
from slurmopt.collectives.outliers import outliers
from slurmopt.collectives.recording import Recording, Row
from slurmopt.collectives.summary import (
    collectives,
    duration,
    fit_of,
    fit_rows,
    head,
    main_rows,
    outlier_text,
    rate,
)
from slurmopt.errors import one_line
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.units import human_bytes

_NAMED = 12
"""Outliers that are shown; `--json` has all."""


def text(recording: Recording, comparison: Comparison | None) -> str:
    """The table of the rows, the fits, the links and the comparison."""
    parts = [head(recording), _rows(recording, comparison), _fits(recording), "\n".join(_links(recording))]
    if comparison is not None:
        parts.append("\n".join(_compared(comparison)))
    return "\n\n".join(part for part in parts if part)


def as_json(recording: Recording, comparison: Comparison | None) -> dict[str, Any]:
    """The answer of `--json`."""
    fits = {name: fit_of(recording, name) for name in collectives(recording)}
    return {
        **recording.as_dict(),
        "fits": {name: None if one is None else {**asdict(one), "bad": one.is_bad} for name, one in fits.items()},
        "outliers": [{**asdict(one), "factor": one.factor} for one in outliers(recording.links)],
        "comparison": None if comparison is None else _comparison(comparison),
    }


def fault(row: Row) -> str:
    """A wrong value, in one line."""
    where = f"; {row.fault}" if row.fault else ""
    return one_line(f"{row.collective} of {row.size:,} bytes ({row.source}) gave {row.wrong:,} wrong values{where}")


def _comparison(comparison: Comparison) -> dict[str, Any]:
    changes = {
        key: [{**asdict(each), "ratio": each.ratio} for each in getattr(comparison, key)] for key in ("rows", "links")
    }
    return {**changes, "remarks": comparison.remarks, "slower": comparison.slower}


def _rows(recording: Recording, comparison: Comparison | None) -> str:
    earlier = {} if comparison is None else {(each.name, each.size): each for each in comparison.rows}
    has_peer = {row.source for row in recording.rows} == {"torch", "nccl-tests"}
    header = ["COLLECTIVE", "SIZE", "TIME", "ALGBW GB/s", "BUSBW GB/s"]
    header += ["NCCL-TESTS"] * has_peer + ["EARLIER", "RATIO"] * bool(earlier) + ["CALLS", ""]
    lines = []
    for row in main_rows(recording):
        cells = [row.collective, human_bytes(row.size), duration(row.seconds), rate(row.algbw), rate(row.busbw)]
        if has_peer:
            cells.append(_peer(recording, row))
        if earlier:
            change = earlier.get((row.collective, row.size))
            cells += ["", ""] if change is None else [rate(change.earlier), f"{change.ratio:.2f}"]
        lines.append([*cells, str(row.iterations), f"{row.wrong:,} WRONG" if row.wrong else ""])
    return table(header, lines, terminal_width())


def _peer(recording: Recording, row: Row) -> str:
    """The bus bandwidth of nccl-tests for the same size; in place where torch is, too."""
    same = [each for each in recording.of(row.collective, "nccl-tests") if each.size == row.size]
    fitting = [each for each in same if each.in_place == row.in_place] or same
    return rate(fitting[0].busbw) if fitting else ""


def _fits(recording: Recording) -> str:
    lines = fit_rows(recording)
    return table(["t = α + S/β", "α", "β GB/s", "ERROR", ""], lines, terminal_width()) if lines else ""


def _links(recording: Recording) -> Iterator[str]:
    links = recording.links
    if not links:
        return
    latency, bandwidth = median(link.latency for link in links), median(link.bandwidth for link in links) / 1e9
    count = f"{len(links)} link{'s' if len(links) > 1 else ''}"
    yield f"{count}: median latency {duration(latency)}, median bandwidth {rate(bandwidth)} GB/s each way"
    found = outliers(links)
    yield from (f"slow {one.kind} {outlier_text(one)}" for one in found[:_NAMED])
    if len(found) > _NAMED:
        yield f"… and {len(found) - _NAMED} more; --json has them"
    if not found:
        yield "no slow link or node" if len(links) > 2 else "too few links to find a slow one; compare with --against"


def _compared(comparison: Comparison) -> Iterator[str]:
    if comparison.rows:
        ratio = median(each.ratio for each in comparison.rows)
        yield f"earlier: median ratio {ratio:.2f} of {len(comparison.rows)} rows"
    yield from (f"differs: {one_line(remark)}" for remark in comparison.remarks)
    yield from (f"slower: {one_line(line)}" for line in comparison.slower)
