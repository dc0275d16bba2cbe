"""A search for a batch size as one HTML page that needs nothing else, with charts by Apache ECharts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slurmopt.grid.search.batch_size import FAST, MARGIN, Trial, answer, failed, rate_text
from slurmopt.report.output.page import render
from slurmopt.run_folder.access.files import replace_text
from slurmopt.units import human_bytes

_STYLES = ("report.css", "results.css")
_SCRIPTS = ("echarts.js", "charts.js", "batch-size.js")


def write(name: str, key: str, trials: Sequence[Trial], path: Path) -> None:
    """Writes the page. `trials` are in the order of their sizes. OSError where that fails."""
    replace_text(path, page_of(name, key, trials), mode=0o644)


def page_of(name: str, key: str, trials: Sequence[Trial]) -> str:
    """The page."""
    limit = next((trial.limit for trial in reversed(trials) if trial.limit is not None), None)
    return render(
        "batch-size.html.j2",
        _STYLES,
        _SCRIPTS,
        title=f"Batch size: {key}",
        name=name,
        tiles=_tiles(trials),
        fast=f"{FAST:.0%}",
        margin=f"{MARGIN:.0%}",
        knows_memory=any(trial.memory is not None for trial in trials),
        rows=[_row(trial) for trial in trials],
        data={
            "sizes": [trial.size for trial in trials],
            "rates": [trial.rate for trial in trials],
            "memory": [trial.memory for trial in trials],
            "fast": FAST * max((trial.rate or 0.0 for trial in trials), default=0.0),
            "room": None if limit is None else (1 - MARGIN) * limit,
        },
    )


def _tiles(trials: Sequence[Trial]) -> list[tuple[str, str]]:
    if failed(trials) is not None:
        return [("no answer", "a trial failed, and not for want of memory")]
    found = answer(trials)
    if found is None:
        return [("none", "sizes that fit")]
    return [
        (f"{found.best.size:,}", f"the smallest size within {1 - FAST:.0%} of the best rate"),
        (f"{found.largest.size:,}", "the largest size that fits"),
    ]


def _row(trial: Trial) -> tuple[str, str, str, str]:
    memory = "" if trial.memory is None else human_bytes(trial.memory)
    why = trial.error or ("" if trial.fits else "leaves too little memory")
    return f"{trial.size:,}", rate_text(trial), memory, why
