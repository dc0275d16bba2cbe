"""One picture of the board: lines of styled text from its rows and from what the user has chosen. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurmopt.board.columns import Line, Placed, cells, clean, fitted, heads, layout, state_style
from slurmopt.board.rows.order import matching, ordered
from slurmopt.board.rows.row import Row, counts

KEYS = (
    ("?", "help"), ("enter", "open"), ("l", "logs"), ("e", "errors"), ("h", "history"), ("c", "cancel"),
    ("r", "retry"), ("/", "filter"), ("s", "sort"), ("a", "active"), ("q", "quit"),
)  # fmt: skip
_SHORTEST = ("?", "q")
_ABOVE = 2
"""Lines above the rows: the counts, the heads."""
_FEW_LINES = 6
"""A terminal of fewer lines shows neither heads nor the selected row's line."""


@dataclass
class View:
    """What the user has chosen."""

    width: int = 80
    height: int = 24
    order: str = "active"
    backwards: bool = False
    words: str = ""
    """The filter."""
    only_active: bool = False
    selected: Path | None = None
    top: int = 0
    """The first row that is shown."""
    prompt: str | None = None
    """A line that asks for text or an answer, in place of the keys."""
    message: str = ""
    """What the last action said."""
    problem: str = ""
    """Why Slurm could not be asked."""
    notes: str = ""
    """Where the runs are, and how many were not read yet."""
    rows: list[Row] = field(default_factory=list)
    """The rows to choose from, filtered and ordered."""

    def take(self, rows: Sequence[Row]) -> None:
        """Filters and orders the rows. The selected row stays selected; the first one is, where none was."""
        shown = [row for row in rows if row.alive or not row.read] if self.only_active else list(rows)
        self.rows = ordered(matching(shown, self.words), self.order, self.backwards)
        self.scroll()

    @property
    def index(self) -> int:
        """The place of the selected row; 0 where it is gone."""
        return next((at for at, row in enumerate(self.rows) if row.path == self.selected), 0)

    @property
    def current(self) -> Row | None:
        """The selected row."""
        return self.rows[self.index] if self.rows else None

    def move(self, by: int) -> None:
        """Selects a row further down, or up."""
        if self.rows:
            self.selected = self.rows[min(len(self.rows) - 1, max(0, self.index + by))].path
            self.scroll()

    def scroll(self) -> None:
        """Moves the rows such that the selected one is shown; without a selection the first ones are."""
        space, at = self.space, self.index if self.selected else 0
        last = max(0, len(self.rows) - space)
        self.top = min(last, max(at - space + 1, min(self.top, at)))

    @property
    def above(self) -> int:
        return _ABOVE if self.height >= _FEW_LINES else 1

    @property
    def space(self) -> int:
        """Lines for rows."""
        below = 1 if self.height < _FEW_LINES else 3 if self.problem else 2
        return max(1, self.height - self.above - below)

    @property
    def shown(self) -> list[Row]:
        """The rows on the screen."""
        return self.rows[self.top : self.top + self.space]

    @property
    def columns(self) -> list[Placed]:
        longest = max((len(row.name) for row in self.rows), default=0)
        return layout(self.width, longest, any(row.gpu for row in self.rows))


def frame(view: View, every: Sequence[Row], now: float) -> list[Line]:
    """All lines of the screen, each of the view's width."""
    columns = view.columns
    lines = [_summary(view, every)]
    if view.above > 1:
        lines.append(_headed(view, columns))
    current = view.current
    for row in view.shown:
        line = fitted(cells(row, columns, now), view.width)
        lines.append([("".join(text for text, _ in line), "selected")] if row is current else line)
    if not view.rows:
        lines.append(fitted([(_nothing(view, every), "dim")], view.width))
    blank = [(" " * view.width, "")]
    lines += [blank] * (view.above + view.space - len(lines))
    if view.height >= _FEW_LINES:
        lines.append(_about(view, current))
        if view.problem:
            problem: Line = [(" Slurm was not asked: ", "bold yellow"), (clean(view.problem), "yellow")]
            lines.append(fitted(problem, view.width))
    lines.append(_last(view))
    return lines[: view.height]


def _headed(view: View, columns: Sequence[Placed]) -> Line:
    text = "".join(text for text, _ in heads(columns, view.order, view.backwards)).rstrip()
    return fitted([(text.ljust(view.width), "head")], view.width)


def _summary(view: View, every: Sequence[Row]) -> Line:
    """`slurmopt top  3 running · 996 finished     1-20 of 999`."""
    place = _place(view) if view.rows else ""
    room = view.width - len(place)
    spans = _counts(every, "  ")
    if sum(len(text) for text, _ in spans) > room:
        spans = _counts(every, " ")
    return [*fitted(spans, room), (place, "dim")] if room > 40 else fitted(spans, view.width)


def _counts(every: Sequence[Row], gap: str) -> Line:
    spans: Line = [(" slurmopt top ", "title")]
    for state, count in counts(every):
        spans += [(f"{gap}{count:,} ", "bold"), (state, state_style(state))]
    return spans


def _place(view: View) -> str:
    """The filter, and which of the rows are on the screen where that is not all."""
    chosen = [f"/{clean(view.words)}" if view.words else "", "active" if view.only_active else ""]
    if len(view.rows) > view.space:
        chosen.append(f"{view.top + 1}-{min(len(view.rows), view.top + view.space)}/{len(view.rows):,}")
    return "".join(f" {part} " for part in chosen if part)


def _nothing(view: View, every: Sequence[Row]) -> str:
    if every:
        return f"  no run matches; {'esc clears the filter' if view.words else 'a shows all'}"
    return f"  no runs {view.notes}; start one with slurmopt launch"


def _about(view: View, current: Row | None) -> Line:
    """Of the selected row what its line has no room for; above all what went wrong."""
    if view.message:
        return fitted([(" " + clean(view.message), "bold")], view.width)
    if current is None:
        return fitted([], view.width)
    spans: Line = [(f" {current.label}", "bold")]
    facts = [
        f"job {current.job}" if current.job else "",
        f"on {current.nodes}" if current.nodes else "",
        f"attempt {current.attempt}" if current.attempt else "",
        f"of another user ({current.owner})" if current.owner else "",
    ]
    spans += [(f"  {clean(fact)}", "dim") for fact in facts if fact]
    if current.detail:
        spans.append((f"  {clean(current.detail)}", state_style(current.state) if not current.alive else "yellow"))
    return fitted(spans, view.width)


def _last(view: View) -> Line:
    """The prompt, else the keys."""
    if view.prompt is not None:
        return fitted([(f" {view.prompt}", "prompt")], view.width)
    return fitted([span for _, spans in key_line(view.width) for span in spans], view.width)


def key_line(width: int) -> list[tuple[str, Line]]:
    """The keys that fit, each with its spans; `?` and `q` always."""
    left = width - sum(_size(key, word) for key, word in KEYS if key in _SHORTEST)
    shown = []
    for key, word in KEYS:
        if key not in _SHORTEST:
            left -= _size(key, word)
        if key in _SHORTEST or left >= 0:
            shown.append((key, [(f" {key}", "key"), (f" {word} ", "")]))
    return shown


def _size(key: str, word: str) -> int:
    return len(key) + len(word) + 3


def key_at(x: int, width: int) -> str | None:
    """The key whose word is at column `x` of the last line."""
    start = 0
    for key, spans in key_line(width):
        start += sum(len(text) for text, _ in spans)
        if x < start:
            return key
    return None
