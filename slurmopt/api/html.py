"""What a notebook shows of a run or a sweep: a small table. All texts come from folders that others may have written,
and are escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt.errors import one_line
from slurmopt.runs.status import view as run_view
from slurmopt.sweeps.results.importance import shown
from slurmopt.sweeps.status import view as sweep_view
from slurmopt.sweeps.status.failures import groups
from slurmopt.units import human_count, human_seconds

if TYPE_CHECKING:
    from slurmopt.grid.point_ranges import Ranges
    from slurmopt.runs.status.query import Status
    from slurmopt.sweeps.results.outcomes import Row
    from slurmopt.sweeps.results.ranking import Ranking

_LONGEST = 300
"""Characters of a text."""
_MOST_METRICS, _MOST_ROWS, _MOST_COLUMNS = 12, 8, 8
_COLOURS = {
    "running": "#1769d1", "stopping": "#1769d1", "finished": "#1a7f37", "failed": "#cf222e", "killed": "#cf222e",
    "lost": "#cf222e",
}  # fmt: skip
"""Of states, with enough contrast on white; others are grey."""
_CELL = "text-align:left;vertical-align:top;padding:1px 12px 1px 0"


def run_line(status: Status) -> str:
    """`running, step 12/100, loss 0.1`, for people and on one line."""
    progress, error = status.progress, _error(status)
    step = f"step {run_view.steps(progress)}" if progress.step is not None else ""
    waits = status.detail if status.state in ("pending", "requeued", "unknown", "unsubmitted") else ""
    return one_line(", ".join(filter(None, (status.state, waits, step, _metrics(status), error))))


def run_page(status: Status, label: str) -> str:
    """A run: state, progress, last metrics, what went wrong, links."""
    folder, progress = status.folder, status.progress
    elapsed = human_seconds(status.elapsed) if status.elapsed is not None else ""
    left = human_seconds(progress.eta_seconds) if progress.eta_seconds is not None and status.alive else ""
    rate = f"{human_count(progress.steps_per_second)} steps/s" if progress.steps_per_second is not None else ""
    bar = _bar(progress.step, progress.total_steps)
    rows = [
        ("progress", _joined([bar, _text(run_view.steps(progress)), _text(rate)])),
        ("metrics", _text(_metrics(status))),
        ("time", _text(", ".join(filter(None, (elapsed, f"about {left} left" if left else ""))))),
        ("why", _text(_why(status))),
        ("error", _text(_error(status))),
        ("job", _text(_job(status))),
        ("folder", _link(folder.told(folder.path))),
        ("log", _link(run_view.log_path(status))),
        ("report", _link(folder.told(folder.report) if folder.report.is_file() else None)),
    ]
    return _page(label, status.state, rows)


def _why(status: Status) -> str:
    whose = run_view.whose(status.owner)
    return "; ".join(filter(None, (whose, "" if _error(status) else status.detail)))


def _error(status: Status) -> str:
    """The error of a run that has ended without success."""
    error = (status.journal.ended or {}).get("error")
    return str(error or status.detail or "") if status.state in ("failed", "killed", "lost") else ""


def _metrics(status: Status) -> str:
    values = list(status.progress.metrics.items())
    more = ["…"] if len(values) > _MOST_METRICS else []
    return ", ".join([*(f"{name} {value:.4g}" for name, value in values[:_MOST_METRICS]), *more])


def _job(status: Status) -> str:
    attempt = status.journal.attempt
    number = f"attempt {attempt.number}" if attempt is not None else ""
    return ", ".join(filter(None, (status.journal.job, status.nodes, number)))


def sweep_page(ranking: Ranking, selected: Ranges | None) -> str:
    """A sweep: how many points are in which state, the best of them, and the first failures."""
    table = ranking.table
    states = table.states
    counts = states.counts(selected)
    ended, count = sweep_view.over(counts), sum(counts.values())
    left = sweep_view.pace(states).left
    failures = [f"{len(group.points):,} times {group.error}" for group in groups(states, selected)[:3]]
    rows = [
        ("progress", _joined([_bar(ended, count), _text(f"{ended:,}/{count:,}")])),
        ("points", _text(sweep_view.state_counts(counts))),
        ("left", _text(f"about {human_seconds(left)}" if left is not None else "")),
        ("why", _text(f"Slurm was not asked: {states.problem}" if states.problem else "")),
        ("failures", "<br>".join(map(_text, failures))),
        ("folder", _link(states.sweep.path)),
    ]
    return _page(states.label, states.state, rows) + _results(ranking)


def _results(ranking: Ranking) -> str:
    """The points in the order of the metric, the best first."""
    table = ranking.table
    places = ranking.places(_MOST_ROWS)
    if not places:
        return ""
    metrics = sorted(table.metrics, key=lambda name: name != ranking.metric)[:_MOST_COLUMNS]
    axes = table.axes[:_MOST_COLUMNS]
    head = ["point", *axes, *metrics, "state"]
    rows = "".join(_row("td", _cells(row, axes, metrics)) for row in table.rows(places))
    more = len(table.places) - len(places)
    rest = f"<div>… and {more:,} more: results()</div>" if more > 0 else ""
    return f"<table><thead>{_row('th', head)}</thead><tbody>{rows}</tbody></table>{rest}"


def _cells(row: Row, axes: list[str], metrics: list[str]) -> list[str]:
    values: list[Any] = [row.values.get(axis, "") for axis in axes]
    numbers = [f"{row.metrics[name]:.4g}" if name in row.metrics else "" for name in metrics]
    return [str(row.point), *[shown(value) for value in values], *numbers, "pruned" if row.pruned else row.state]


def _row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f'<{tag} style="{_CELL}">{_text(cell)}</{tag}>' for cell in cells) + "</tr>"


def line(text: str) -> str:
    """One line of text."""
    return f"<div>{_text(text)}</div>"


def _page(label: str, state: str, rows: list[tuple[str, str]]) -> str:
    colour = _COLOURS.get(state, "#6e7781")
    badge = f'<span style="color:#fff;background:{colour};border-radius:3px;padding:0 6px">{_text(state)}</span>'
    cells = "".join(
        f'<tr><th scope="row" style="{_CELL};font-weight:normal;opacity:.7">{name}</th>'
        f'<td style="{_CELL}">{value}</td></tr>'
        for name, value in rows
        if value
    )
    return f"<div><b>{_text(label)}</b> {badge}</div><table><tbody>{cells}</tbody></table>"


def _joined(parts: list[str]) -> str:
    return " ".join(filter(None, parts))


def _bar(value: int | None, most: int | None) -> str:
    if value is None or not most or most < 0:
        return ""
    return f'<progress value="{min(max(value, 0), most)}" max="{most}" aria-label="progress"></progress>'


def _link(path: Path | str | None) -> str:
    """The path, to click where the browser is on the same machine, and to copy elsewhere."""
    if path is None:
        return ""
    return f'<a href="{escape(Path(path).as_uri())}">{escape(one_line(str(path)))}</a>'


def _text(text: str) -> str:
    """Text of anybody's, on one line, escaped and cut."""
    plain = one_line(text)
    return escape(plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}…")
