"""A benchmark of collectives as one HTML page that needs nothing else, with charts by Apache ECharts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurmopt.collectives.comparison import Comparison
from slurmopt.collectives.outliers import outliers
from slurmopt.collectives.recording import Recording
from slurmopt.collectives.summary import (
    collectives,
    duration,
    fit_curve,
    fit_rows,
    head,
    main_rows,
    outlier_text,
    rate,
)
from slurmopt.report.output.page import render
from slurmopt.run_folder.access.files import replace_text
from slurmopt.units import human_bytes

_MOST_LINKS = 200
"""Rows of the table of links; the chart and `--json` have all."""
_MOST_CELLS = 20_000
_MOST_REMARKS = 20
_STYLES = ("report.css", "results.css")
_SCRIPTS = ("echarts.js", "charts.js", "collectives.js")


def write(recording: Recording, comparison: Comparison | None, path: Path) -> None:
    """Writes the page. OSError where that fails."""
    replace_text(path, page_of(recording, comparison), mode=0o644)


def page_of(recording: Recording, comparison: Comparison | None) -> str:
    """The page."""
    links = sorted(recording.links, key=lambda link: link.bandwidth)
    return render(
        "collectives.html.j2",
        _STYLES,
        _SCRIPTS,
        title="Collectives",
        head=head(recording),
        tiles=_tiles(recording),
        remarks=_remarks(recording, comparison),
        columns=_columns(comparison),
        rows=_rows(recording, comparison),
        fits=fit_rows(recording),
        links=[(link.name, duration(link.latency), rate(link.bandwidth / 1e9)) for link in links],
        most_links=_MOST_LINKS,
        data=_data(recording),
    )


def _tiles(recording: Recording) -> list[tuple[str, str]]:
    """The largest bus bandwidth of each collective."""
    found = []
    for name in collectives(recording):
        best = max(row.busbw for row in main_rows(recording) if row.collective == name)
        found.append((f"{rate(best)} GB/s", f"{name}, largest busbw"))
    return found


def _remarks(recording: Recording, comparison: Comparison | None) -> list[str]:
    found = [f"wrong values: {row.collective} of {row.size:,} bytes; {row.fault}" for row in recording.wrong]
    found += [f"slow {one.kind} {outlier_text(one)}" for one in outliers(recording.links)]
    if comparison is not None:
        found += [f"slower than before: {line}" for line in comparison.slower]
        found += [f"differs from before: {line}" for line in comparison.remarks]
    return [*found, *recording.notes][:_MOST_REMARKS]


def _columns(comparison: Comparison | None) -> list[str]:
    columns = ["collective", "size", "time", "algbw, GB/s", "busbw, GB/s"]
    return columns + (["earlier busbw", "ratio"] if comparison is not None else [])


def _rows(recording: Recording, comparison: Comparison | None) -> list[list[str]]:
    earlier = {} if comparison is None else {(each.name, each.size): each for each in comparison.rows}
    lines = []
    for row in main_rows(recording):
        cells = [row.collective, human_bytes(row.size), duration(row.seconds), rate(row.algbw), rate(row.busbw)]
        change = earlier.get((row.collective, row.size))
        if comparison is not None:
            cells += ["", ""] if change is None else [rate(change.earlier), f"{change.ratio:.2f}"]
        lines.append(cells)
    return lines


def _data(recording: Recording) -> dict[str, Any]:
    """What the page's script reads. Links go by the places of their ends in `ends`."""
    ends: dict[str, int] = {}
    links = recording.links[:_MOST_CELLS]
    for link in links:
        ends.setdefault(link.first, len(ends))
        ends.setdefault(link.second, len(ends))
    ordered = sorted(ends, key=lambda name: (len(name), name))
    places = {name: at for at, name in enumerate(ordered)}
    return {
        "collectives": [_curve(recording, name) for name in collectives(recording)],
        "ends": ordered,
        "links": [[places[link.first], places[link.second], link.bandwidth / 1e9] for link in links],
    }


def _curve(recording: Recording, name: str) -> dict[str, Any]:
    rows = [row for row in main_rows(recording) if row.collective == name and row.busbw > 0]
    return {
        "name": name,
        "sizes": [row.size for row in rows],
        "busbw": [row.busbw for row in rows],
        "fit": fit_curve(recording, name),
    }
