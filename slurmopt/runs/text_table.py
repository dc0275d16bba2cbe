"""Formats tables for a terminal: aligned columns, cut to its width."""

from __future__ import annotations

import os
import sys

from slurmopt.runs.colour import BOLD, of_state, paint

_NARROWEST = 80
_GAP = 2


def table(header: list[str], rows: list[list[str]], width: int | None, coloured: bool = False) -> str:
    """The rows below a header. The last column is cut where a line would be longer than `width` (None: never).

    `coloured`: cells that are a state have its colour.
    """
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header) - 1)]
    texts = [_line(line, widths, width) for line in lines]
    if coloured and "STATE" in header:
        column = header.index("STATE")
        start = sum(widths[:column]) + _GAP * column
        texts[1:] = [_with_state(text, start, row[column]) for text, row in zip(texts[1:], rows, strict=True)]
        texts[0] = paint(texts[0], BOLD)
    return "\n".join(texts)


def _with_state(line: str, start: int, state: str) -> str:
    end = start + len(state)
    return line[:start] + paint(line[start:end], of_state(state)) + line[end:]


def _line(cells: list[str], widths: list[int], width: int | None) -> str:
    aligned = [cell.ljust(size) for cell, size in zip(cells, widths, strict=False)]
    return cut((" " * _GAP).join([*aligned, cells[-1]]).rstrip(), width)


def cut(line: str, width: int | None) -> str:
    """`line`, with an ellipsis where it is longer than `width`."""
    return line if width is None or len(line) <= width else line[: width - 1] + "…"


def terminal_width(narrowest: int = _NARROWEST) -> int | None:
    """Columns of the terminal on standard output, at least `narrowest`; None for a file or a pipe, where nothing needs
    to be cut."""
    if not sys.stdout.isatty():
        return None
    try:
        return max(narrowest, int(os.environ.get("COLUMNS") or os.get_terminal_size(sys.stdout.fileno()).columns))
    except (OSError, ValueError):
        return _NARROWEST
