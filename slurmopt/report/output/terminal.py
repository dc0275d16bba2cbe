"""Prints styled lines: with colours on a terminal, as plain text elsewhere and with NO_COLOR."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

Span = tuple[str, str]
"""A piece of a line, and its style as rich names it; "" for none."""
StyledLine = Sequence[Span]

WIDTH = 80
"""Columns where there is no terminal to ask."""
_WIDEST = 110
"""Longer lines are hard to read."""


def width() -> int:
    """Columns that a report may fill."""
    from slurmopt.runs.text_table import terminal_width

    return min(terminal_width() or WIDTH, _WIDEST)


def plain(lines: Iterable[StyledLine]) -> str:
    """The lines without styles."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def show(lines: Sequence[StyledLine]) -> None:
    """Prints them on standard output."""
    if sys.stdout.isatty():
        print(styled(lines))
    else:
        print(encodable(plain(lines)))


def styled(lines: Iterable[StyledLine]) -> str:
    """The lines with the escapes of the terminal on standard output; rich heeds NO_COLOR and TERM."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    with console.capture() as captured:
        for line in lines:
            console.print(Text.assemble(*line, end=""))
    return captured.get().rstrip("\n")


_ASCII = str.maketrans({**dict.fromkeys("█▉▊▋▌▍▎▏", "|"), "─": "-", "→": ">", "·": "*", "…": "~", "°": " "})


def encodable(text: str) -> str:
    """The text in characters that standard output has: an ASCII one gets `|` for bars."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(_ASCII)
    return text
