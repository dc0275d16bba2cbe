"""The frames of a terminal session as one SVG that moves: text, no scripts, no fonts from outside.

A line is drawn once, and each frame refers to it. Browsers and GitHub's pages play its CSS animation; who prefers
reduced motion sees the last frame.
"""

from __future__ import annotations

from html import escape
from itertools import groupby

from terminal import Cell, Frame, Row

CELL_WIDTH, CELL_HEIGHT, MARGIN, BAR = 8.4, 18.0, 14.0, 30.0
_COLOURS = {
    "default": "#d6dbe0", "black": "#3b4048", "red": "#f07178", "green": "#a8cc6a", "brown": "#e6c07b",
    "blue": "#82aaff", "magenta": "#c792ea", "cyan": "#7fdbca", "white": "#d6dbe0", "brightblack": "#7d8590",
    "brightred": "#ff8b92", "brightgreen": "#c3e88d", "brightbrown": "#ffd98a", "brightblue": "#9cc4ff",
    "brightmagenta": "#ddb6f2", "brightcyan": "#a3f0e4", "brightwhite": "#ffffff",
}  # fmt: skip


def animated_svg(frames: list[Frame], length: float, title: str) -> str:
    """The text of the SVG; `length` is the time after which it starts again, in seconds."""
    columns, lines = len(frames[0].rows[0]), len(frames[0].rows)
    width, height = 2 * MARGIN + columns * CELL_WIDTH, BAR + MARGIN + lines * CELL_HEIGHT
    known: dict[Row, int] = {}
    drawn = "\n".join(_frame(number, frame, known) for number, frame in enumerate(frames))
    defined = "\n".join(_line(number, row) for row, number in known.items())
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">
<title>{escape(title)}</title>
<style>
text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre }}
.b {{ font-weight: bold }}
{_animation(frames, length)}
</style>
<rect width="100%" height="100%" rx="8" fill="#1b1f24"/>
<circle cx="18" cy="15" r="5" fill="#f07178"/><circle cx="34" cy="15" r="5" fill="#e6c07b"/>
<circle cx="50" cy="15" r="5" fill="#a8cc6a"/>
<defs>
{defined}
</defs>
{drawn}
</svg>
"""


def _animation(frames: list[Frame], length: float) -> str:
    """A frame is visible from its start to that of the next one."""
    rules = [f".f {{ visibility: hidden; animation-duration: {length:.2f}s; animation-iteration-count: infinite; "]
    rules[0] += "animation-timing-function: step-end }"
    ends = [frame.start for frame in frames[1:]] + [length]
    for number, (frame, end) in enumerate(zip(frames, ends, strict=True)):
        start, stop = 100 * frame.start / length, 100 * end / length
        first = "0%,to{visibility:hidden}" if number else "to{visibility:hidden}"
        rules.append(
            f"@keyframes k{number}{{{first}{start:.3f}%{{visibility:visible}}{stop:.3f}%{{visibility:hidden}}}}"
            f"#f{number}{{animation-name:k{number}}}"
        )
    still = (
        f"@media (prefers-reduced-motion) {{ .f {{ animation: none }} #f{len(frames) - 1} {{ visibility: visible }} }}"
    )
    return "\n".join([*rules, still])


def _frame(number: int, frame: Frame, known: dict[Row, int]) -> str:
    uses = []
    for at, row in enumerate(frame.rows):
        if any(cell.text.strip() for cell in row):
            line = known.setdefault(row, len(known))
            uses.append(f'<use href="#l{line}" y="{BAR + at * CELL_HEIGHT:.0f}"/>')
    x, y = frame.cursor
    left, top = MARGIN + x * CELL_WIDTH, BAR + y * CELL_HEIGHT + 2
    cursor = f'<rect x="{left:.1f}" y="{top:.0f}" width="8" height="16" fill="#d6dbe0" opacity=".5"/>'
    return f'<g class="f" id="f{number}">{"".join(uses)}{cursor}</g>'


def _line(number: int, row: Row) -> str:
    parts, column = [], 0
    for (colour, bold), cells in groupby(row, key=lambda cell: (cell.colour, cell.bold)):
        text = "".join(cell.text for cell in cells)
        if text.strip():
            parts.append(_text(text.rstrip(), column, colour, bold))
        column += len(text)
    return f'<g id="l{number}">{"".join(parts)}</g>'


def _text(text: str, column: int, colour: str, bold: bool) -> str:
    """One piece of a line; its length is fixed, so that it fits whatever font the reader has."""
    left = MARGIN + column * CELL_WIDTH
    fill = _COLOURS.get(colour, f"#{colour}")
    weight = ' class="b"' if bold else ""
    return (
        f'<text x="{left:.1f}" y="14" textLength="{len(text) * CELL_WIDTH:.1f}" fill="{fill}"{weight}>'
        f"{escape(text)}</text>"
    )


__all__ = ["Cell", "animated_svg"]
