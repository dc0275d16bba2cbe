"""The table of `slurmopt list`: whole in a file or a pipe, on a terminal the columns for which there is room."""

from __future__ import annotations

import os
import time
from pathlib import Path

from slurmopt.errors import one_line
from slurmopt.runs.colour import BOLD, of_state, paint
from slurmopt.runs.status.state import age
from slurmopt.runs.status.view import metrics, whose
from slurmopt.runs.text_table import cut
from slurmopt.sweeps.listing.rows import Row, folder_of

_HEADER = ["NAME", "ID", "STATE", "JOB", "PROGRESS", "LAUNCHED", "FOLDER", "METRICS", "WHY"]
_STATE, _METRICS = _HEADER.index("STATE"), _HEADER.index("METRICS")
_MOST_METRICS = 40
_LEAST = {"WHY": 16, "METRICS": 10}
"""The columns that are cut, and how many characters are worth showing."""
_DROPPED = ("WHY", "METRICS", "PROGRESS", "JOB", "FOLDER", "LAUNCHED", "ID")
"""Which columns go where the terminal is narrow, in this order."""
_GAP = 2


def text(rows: list[Row], width: int | None, with_folder: bool, coloured: bool) -> str:
    """The table. `width`: of the terminal; None where nothing is cut."""
    now = time.time()
    lines = [_HEADER, *(_cells(row, now, is_short=width is not None) for row in rows)]
    columns = [number for number, name in enumerate(_HEADER) if name != "FOLDER" or with_folder]
    columns = [number for number in columns if any(line[number] for line in lines[1:])]
    sizes = _sizes({number: max(len(line[number]) for line in lines) for number in columns}, width)
    return "\n".join(_line(cells, sizes, coloured, is_header=cells is _HEADER) for cells in lines)


def _cells(row: Row, now: float, is_short: bool) -> list[str]:
    why = "; ".join(filter(None, (whose(row.owner), row.why)))
    return [
        one_line(row.folder.name),
        one_line(row.folder.id),
        row.state,
        row.job or "",
        row.done,
        age(row.created, now),
        _shown_folder(folder_of(row), is_short),
        metrics(row.progress),
        one_line(why),
    ]


def _shown_folder(folder: Path, is_short: bool) -> str:
    home, path = os.environ.get("HOME", "").rstrip("/"), str(folder)
    if is_short and home and path.startswith(f"{home}/"):
        path = f"~{path[len(home) :]}"
    return one_line(path)


def _sizes(sizes: dict[int, int], width: int | None) -> dict[int, int]:
    """Column → its width, of those for which there is room."""
    if width is None:
        return sizes
    if _METRICS in sizes:
        sizes[_METRICS] = min(sizes[_METRICS], _MOST_METRICS)
    for name in _DROPPED:
        number, over = _HEADER.index(name), _over(sizes, width)
        if over <= 0 or number not in sizes:
            continue
        if sizes[number] - over >= _LEAST.get(name, width):
            sizes[number] -= over
        else:
            del sizes[number]
    name_too_long = max(0, _over(sizes, width))
    return {**sizes, 0: max(1, sizes[0] - name_too_long)}


def _over(sizes: dict[int, int], width: int) -> int:
    """How many characters there are too many."""
    return sum(sizes.values()) + _GAP * (len(sizes) - 1) - width


def _line(cells: list[str], sizes: dict[int, int], coloured: bool, is_header: bool) -> str:
    parts = []
    for number, size in sizes.items():
        shown = cut(cells[number], size)
        parts.append(_coloured(shown, cells[_STATE], number, coloured, is_header) + " " * (size - len(shown)))
    return (" " * _GAP).join(parts).rstrip()


def _coloured(shown: str, state: str, number: int, coloured: bool, is_header: bool) -> str:
    if not coloured:
        return shown
    return paint(shown, BOLD if is_header else of_state(state) if number == _STATE else "")
