"""The table of `slurmopt list`: whole in a file or a pipe, on a terminal the columns for which there is room."""

from __future__ import annotations

import os
import time
from pathlib import Path

from slurmopt.errors import one_line
from slurmopt.runs.colour import BOLD, of_state, paint
from slurmopt.runs.status.state import FAILED, age
from slurmopt.runs.status.view import metrics, whose
from slurmopt.runs.text_table import cut
from slurmopt.sweeps.listing.rows import Row, folder_of

_HEADER = ["NAME", "ID", "STATE", "JOB", "PROGRESS", "LAUNCHED", "FOLDER", "METRICS", "WHY"]
_STATE, _JOB, _LAUNCHED, _METRICS = map(_HEADER.index, ("STATE", "JOB", "LAUNCHED", "METRICS"))
_WORD, _READABLE = 12, 24
"""Characters of metrics and why: so many are worth showing, and so many tell what went wrong."""
_LEAST = {"METRICS": _WORD}
"""The columns that are cut, and how many characters are worth showing."""
_DROPPED = ("METRICS", "JOB", "PROGRESS", "FOLDER", "LAUNCHED", "ID")
"""Which columns go where the terminal is narrow, in this order."""
_GAP = 2


def text(rows: list[Row], width: int | None, with_folder: bool, coloured: bool) -> str:
    """The table. `width`: of the terminal; None where nothing is cut."""
    now = time.time()
    lines = [_HEADER, *(_cells(row, now, is_short=width is not None) for row in rows)]
    sizes = _natural(lines, with_folder)
    if width is not None and _over(sizes, width) > 0:
        lines = _merged(lines)
        sizes = _fitting(_natural(lines, with_folder), width)
    header, *others = lines
    return "\n".join(
        [_line(header, sizes, coloured, True), *(_line(cells, sizes, coloured, False) for cells in others)]
    )


def _natural(lines: list[list[str]], with_folder: bool) -> dict[int, int]:
    """Column → its width, of those that have anything to show."""
    columns = [number for number, name in enumerate(_HEADER) if name != "FOLDER" or with_folder]
    columns = [number for number in columns if any(line[number] for line in lines[1:])]
    return {number: max(len(line[number]) for line in lines) for number in columns}


def _merged(lines: list[list[str]]) -> list[list[str]]:
    """The lines with the metrics and the why in one column: of a run that failed the why comes first."""
    header, *others = lines
    both = [*header[:_METRICS], "METRICS, WHY"]
    return [[*both, ""], *([*line[:_METRICS], _metrics_and_why(line), ""] for line in others)]


def _metrics_and_why(cells: list[str]) -> str:
    shown = [cells[_METRICS], cells[-1]]
    return "; ".join(filter(None, reversed(shown) if cells[_STATE] in FAILED else shown))


def _cells(row: Row, now: float, is_short: bool) -> list[str]:
    why = "; ".join(filter(None, (whose(row.owner), row.why)))
    return [
        one_line(row.name),
        one_line(row.id),
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


def _fitting(sizes: dict[int, int], width: int) -> dict[int, int]:
    """The columns for which there is room, with their widths there."""
    sizes = _with_room_for_why(sizes, width)
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


def _with_room_for_why(sizes: dict[int, int], width: int) -> dict[int, int]:
    """Without the job, and without the time of the launch, which the ID tells too, where metrics and why would be cut
    to a word or left out otherwise; all columns where that does not help."""
    whole = sizes.get(_METRICS, 0)
    for left_out, enough in (((), min(_READABLE, whole)), ((_JOB,), _WORD), ((_JOB, _LAUNCHED), _WORD)):
        fewer = {number: size for number, size in sizes.items() if number not in left_out}
        if whole - _over(fewer, width) >= enough:
            return fewer
    return sizes


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
