"""Formats a run's history for people: the attempts and events, oldest first, then the totals. Fits 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from slurmopt.errors import one_line
from slurmopt.restart import causes
from slurmopt.run_folder.json_values import as_int, text
from slurmopt.runs.history.query import History, Note, hang_of, moment
from slurmopt.runs.history.timeline import Entry
from slurmopt.runs.journal import launched
from slurmopt.runs.text_table import terminal_width
from slurmopt.units import human_seconds

_WIDTH = 80
_INDENT = 17
_BACK = {"requeue": "it requeues itself", "slurm": "Slurm brings it back", "submit": "it needs a fresh submission"}


def page(history: History) -> str:
    """The whole page."""
    status, width = history.status, terminal_width() or _WIDTH
    detail = f" ({one_line(status.detail)})" if status.detail and status.journal.ended is None else ""
    whose = f", of another user ({status.owner})" if status.owner else ""
    blocks = [_wrapped(f"{status.label}: {status.state}{detail}{whose}", width, 2), ""]
    if (began := launched(status.folder, status.journal)) is not None:
        blocks.append(_stamped(began, ["launched"], width))
    blocks += [_stamped(note.time, [note.text], width) for note in history.notes if note.after is None]
    by_attempt: dict[int | None, list[Note]] = {}
    for note in history.notes:
        by_attempt.setdefault(note.after, []).append(note)
    for entry in history.entries:
        blocks.append(_stamped(entry.started, list(_lines(entry)), width))
        blocks += [_stamped(note.time, [note.text], width) for note in by_attempt.get(entry.attempt.number, [])]
    return "\n".join([*blocks, "", *_sums(history.totals, width)])


def _stamped(when: float | None, lines: list[str], width: int) -> str:
    """The lines to the right of a time stamp, wrapped to `width`."""
    stamp = (moment(when) if when is not None else "").ljust(_INDENT)
    first, *rest = [_wrapped(one_line(line), width - _INDENT, 2) for line in lines]
    body = "\n".join([first, *rest])
    return stamp + body.replace("\n", "\n" + " " * _INDENT)


def _wrapped(line: str, width: int, indent: int) -> str:
    return "\n".join(textwrap.wrap(line, width, subsequent_indent=" " * indent, break_on_hyphens=False) or [""])


def _lines(entry: Entry) -> Iterator[str]:
    """The lines of an attempt."""
    attempt = entry.attempt
    where = f" on {attempt.nodes}" if attempt.nodes else ""
    job = f", job {attempt.job}" if attempt.job else ""
    waited = f", after {span(entry.queue)} in the queue" if entry.queue is not None else ""
    yield f"attempt {attempt.number}{where}{job}{waited}"
    yield ", ".join(filter(None, (_ran(entry), _steps(entry))))
    if entry.restart is not None:
        parts = ", ".join(f"{name} {span(seconds)}" for name, seconds in entry.parts.items() if name != "first step")
        yield f"first new step after {span(entry.restart)}" + (f": {parts}" if parts else "")
    if attempt.hang is not None:
        yield _hang(hang_of(attempt.hang))
    yield from _end(entry)


def _ran(entry: Entry) -> str:
    if entry.seconds is None:
        return ""
    return f"{'ran' if entry.attempt.end is not None else 'has run'} {span(entry.seconds)}"


def _steps(entry: Entry) -> str:
    if entry.last is None:
        return ""
    tier = text((entry.attempt.restored or {}).get("tier"))
    from_where = f" (restored from {tier})" if tier else ""
    return f"steps {entry.base or 0:,} → {entry.last:,}{from_where}"


def _hang(hang: dict[str, Any]) -> str:
    rank = "no rank" if hang["rank"] is None else f"rank {hang['rank']}"
    where = f" on {hang['node']}" if hang["node"] else ""
    after_step = f" after step {hang['step']:,}" if hang["step"] is not None else ""
    how_long = f" for {span(hang['seconds'])}" if hang["seconds"] is not None else ""
    if (hang["alike"] or 1) > 1:
        return f"hung: {hang['alike']} ranks went no further{after_step}; no step was made{how_long}"
    return f"hung: {rank}{where} was the first to stop{after_step}; no step was made{how_long}"


def _end(entry: Entry) -> Iterator[str]:
    end = entry.attempt.end
    if end is None:
        return
    rank, node, error = as_int(end.get("rank")), text(end.get("node")), text(end.get("error"))
    where = f" in rank {rank}" if rank is not None else ""
    where += f" on {node}" if node else ""
    cause = entry.cause or "no cause known"
    yield f"ended: {cause}{where if cause != causes.FINISHED else ''}" + (f": {error}" if error else "")
    lost = "" if entry.lost is None else "no step lost" if not entry.lost else f"{_counted(entry.lost, 'step')} lost"
    next_start = _BACK.get(text(end.get("next")) or "", "")
    reason = text(end.get("reason")) if cause != causes.FINISHED else None
    by = f"told by {by}" if (by := text(end.get("by"))) else ""
    if details := "; ".join(filter(None, (lost, next_start, reason, by))):
        yield details


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _sums(totals: dict[str, Any], width: int) -> list[str]:
    lines = [
        ("attempts", _of_causes(totals)),
        ("time", _of_time(totals)),
        ("steps", _of_steps(totals)),
        ("nodes", _of_nodes(totals)),
    ]
    indent = " " * 12
    return [
        textwrap.fill(f"{name:10}  {line}", width, subsequent_indent=indent, break_on_hyphens=False)
        for name, line in lines
        if line
    ]


def _of_causes(totals: dict[str, Any]) -> str:
    causes_text = ", ".join(f"{one_line(cause)} {count}" for cause, count in totals["causes"].items())
    return f"{totals['attempts']}" + (f": {causes_text}" if causes_text else "")


def _of_time(totals: dict[str, Any]) -> str:
    parts = []
    if totals["run_seconds"] is not None:
        parts.append(f"ran {span(totals['run_seconds'])}")
    if totals["restart_seconds"] is not None:
        restore = totals["restore_seconds"]
        of_it = f" ({span(restore)} of it to restore)" if restore is not None else ""
        parts.append(f"{span(totals['restart_seconds'])} of that to start{of_it}")
    if totals["queue_seconds"] is not None:
        parts.append(f"in the queue {span(totals['queue_seconds'])}")
    if totals["wall_seconds"] is not None:
        parts.append(f"in all {span(totals['wall_seconds'])} since the launch")
    return ", ".join(parts)


def _of_steps(totals: dict[str, Any]) -> str:
    if totals["steps_done"] is None:
        return ""
    lost = "" if totals["steps_lost"] is None else f", {totals['steps_lost']:,} of them lost"
    return f"{totals['steps_done']:,} done{lost}; {totals['steps_per_attempt']:,.0f} an attempt"


def _of_nodes(totals: dict[str, Any]) -> str:
    if not totals["node_hours"]:
        return ""
    spent, lost = _hours(totals, "node_hours", "gpu_hours"), _hours(totals, "node_hours_lost", "gpu_hours_lost")
    efficiency = totals["efficiency"]
    return f"{spent} spent" + (f", {lost} lost: efficiency {efficiency:.1%}" if efficiency is not None else "")


def _hours(totals: dict[str, Any], nodes: str, gpus: str) -> str:
    of_gpus = f" ({totals[gpus]:,.3g} GPU-hours)" if totals[gpus] is not None else ""
    return f"{totals[nodes] or 0:,.3g} node-hours{of_gpus}"


def span(seconds: float) -> str:
    """A duration for people; with tenths of a second below ten seconds."""
    return f"{seconds:.1f}s" if seconds < 10 else human_seconds(seconds)
