"""The details of a run or sweep: the error first, then its status, then its attempts."""

from __future__ import annotations

import os

from slurmopt.board.columns import state_style
from slurmopt.board.rows.row import GONE, Row
from slurmopt.errors import SlurmoptError, one_line, plain_lines, with_place
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.replaced_folders import jobs_and_end
from slurmopt.runs.sparkline import sparkline
from slurmopt.runs.status.state import FAILED

Text = list[tuple[str, str]]
_MOST_METRICS = 40


def details(row: Row) -> Text:
    """The lines with their styles; where the folder cannot be read, why."""
    if not os.path.lexists(RunFolder(row.path).events):
        return _of_gone(row)
    try:
        return _of_sweep(row) if row.is_sweep else _of_run(row)
    except (SlurmoptError, OSError) as error:
        return [(one_line(with_place(error)), "bold red")]


def _of_gone(row: Row) -> Text:
    """What the board knows of a run whose folder is no longer there."""
    lines: Text = [(f"{row.label}: {GONE}", f"bold {state_style(GONE)}"), *_text(f"  folder     {row.path}")]
    lines += _text("  why        its folder was removed or renamed, or something else is there now")
    if row.job:
        subject, end = jobs_and_end([row.job])
        lines += _text(f"  job        {subject} may go on: `{end}` ends it")
    return [*lines, *_metrics(row)]


def _of_run(row: Row) -> Text:
    from slurmopt.runs.history import view as history_view
    from slurmopt.runs.history.query import history
    from slurmopt.runs.status.errors_page import report
    from slurmopt.runs.status.query import gather
    from slurmopt.runs.status.view import page

    run = RunFolder(row.path)
    (status,), _ = gather([run], details=True)
    lines: Text = []
    if status.state in FAILED:
        lines += [("ERROR", "bold red"), *_text(report(status, None)), ("", "")]
    head, *rest = page(status).split("\n")
    lines += [(head, f"bold {state_style(status.state)}"), *_text("\n".join(rest)), *_metrics(row)]
    _, _, attempts = history_view.page(history(run)).partition("\n\n")
    return [*lines, ("", ""), ("ATTEMPTS", "bold"), *_text(attempts)]


def _metrics(row: Row) -> Text:
    """Each metric in a line of its own; the shown one with its curve."""
    if not row.metrics:
        return []
    width = min(24, max(map(len, row.metrics)))
    lines: Text = [("", ""), ("METRICS", "bold")]
    for name, value in list(row.metrics.items())[:_MOST_METRICS]:
        curve = sparkline(row.curve) if row.metric is not None and name == row.metric[0] else ""
        lines.append((one_line(f"  {name[:width]:{width}} {value:12.6g}  {curve}").rstrip(), ""))
    return lines


def _of_sweep(row: Row) -> Text:
    from slurmopt.sweeps.status import view
    from slurmopt.sweeps.status.query import sweep_states

    states = sweep_states(SweepFolder(row.path))
    head, *rest = view.page(states).split("\n")
    lines: Text = [(head, f"bold {state_style(states.state)}"), *_text("\n".join(rest))]
    under_way = ("running", "stopping", "requeued")
    for head, words in (("UNDER WAY", under_way), ("FAILED", FAILED), ("FINISHED", ("finished",))):
        numbers = states.numbers(*words)
        if numbers:
            lines += [("", ""), (head, "bold")]
            lines += _text(view.points_table(states, numbers, None))
    return lines


def _text(text: str) -> Text:
    return [(line.expandtabs(8), "") for line in plain_lines(text).split("\n")]
