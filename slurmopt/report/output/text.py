"""A report as lines for a terminal: header, bars, nodes, attempts, findings, notes, in this order."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Protocol

from slurmopt.errors import one_line
from slurmopt.ledger import buckets
from slurmopt.ledger.findings.finding import Finding
from slurmopt.report.output.terminal import Span, StyledLine
from slurmopt.report.run import words
from slurmopt.report.run.run_report import COLUMNS, AttemptRow, RunReport, Share, Usage

MOST_NODES = 20
_MOST_ATTEMPTS = 12
_MOST_COLUMNS = 7
STATE_STYLES = {"finished": "bold green", "running": "bold cyan", "failed": "bold red", "killed": "bold red"}
BUCKET_STYLES = {
    buckets.COMPUTE: "green",
    buckets.COMMUNICATION: "blue",
    buckets.INPUT: "yellow",
    buckets.CHECKPOINT: "magenta",
    buckets.PHASES: "cyan",
    buckets.STALLED: "red",
    buckets.LOST: "red",
    buckets.UNUSED: "red",
    buckets.UNKNOWN: "bright_black",
}
"""Bucket → the style of its bar; the others, which get a run going, are white."""
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_SURE = {"certain": "bold red", "likely": "bold yellow", "possible": "yellow"}


def lines(report: RunReport, width: int) -> list[StyledLine]:
    """The whole report, at most `width` columns wide, but for paths and overrides, which are never cut."""
    sections = [
        _head(report, width),
        ledger_lines(report, width),
        _usage(report, width),
        _nodes(report, width),
        _attempts(report, width),
        _findings(report, width),
        _notes(report, width),
    ]
    result: list[StyledLine] = []
    for section in sections:
        if found := list(section):
            result += [[], *found] if result else found
    return result


def title(text: str, width: int, aside: str = "") -> StyledLine:
    """The first line of a section."""
    rule = "─" * max(3, width - len(text) - len(aside) - (2 if aside else 1))
    return [(text, "bold"), (f" {rule}", "bright_black"), (f" {aside}" if aside else "", "bright_black")]


def _head(report: RunReport, width: int) -> Iterator[StyledLine]:
    detail = f": {one_line(report.detail)}" if report.detail else ""
    yield [
        (one_line(report.label), "bold"),
        ("  ", ""),
        (report.state, STATE_STYLES.get(report.state, "bold yellow")),
        (detail, ""),
    ]
    for name, value in facts(report):
        yield from wrapped([(f"  {name:11}", "bright_black")], one_line(value), width, 13)


def facts(report: RunReport) -> list[tuple[str, str]]:
    """The lines of the header that have something to say; for the page too."""
    launched = words.moment(report.created) if report.created is not None else ""
    known = [
        ("experiment", report.experiment or ""),
        ("owner", report.owner or ""),
        ("hardware", words.hardware(report)),
        ("launched", launched),
        ("time", _times(report)),
        ("steps", words.steps(report)),
        ("speed", words.speed(report)),
        ("plan", words.planned(report.planned)),
        ("cost", words.cost_of(report.cost, report.device_seconds, report.unit) if report.device_seconds else ""),
        ("energy", words.energy(report.cost)),
        ("accounting", words.checked(report.accounting)),
        ("jobs", _jobs(report)),
        ("folder", report.folder or ""),
    ]
    return [(name, value) for name, value in known if value]


def _jobs(report: RunReport) -> str:
    more = f" and {len(report.jobs) - 3} earlier" if len(report.jobs) > 3 else ""
    backend = f" ({report.backend})" if report.backend else ""
    return ", ".join(report.jobs[-3:]) + more + backend if report.jobs else ""


def _times(report: RunReport) -> str:
    count = len(report.attempts)
    parts = [f"{words.span(report.wall)} since the launch" if report.wall is not None else ""]
    in_attempts = f" in {count} attempts" if count > 1 else ""
    parts.append(f"ran {words.span(report.ran)}{in_attempts}" if report.ran is not None else "")
    parts.append(f"in the queue {words.span(report.queued)}" if report.queued is not None else "")
    return ", ".join(filter(None, parts))


class HasLedger(Protocol):
    """A report that shows where device time went."""

    unit: str
    device_seconds: float
    shares: list[Share]
    provisional: bool


def ledger_lines(report: HasLedger, width: int) -> Iterator[StyledLine]:
    """The bars of the ledger."""
    if not report.shares:
        return
    aside = "so far" if report.provisional else ""
    yield title(f"Where {words.device_time(report.device_seconds, report.unit)} went", width, aside)
    longest = max(len(share.bucket) for share in report.shares)
    room = width - longest - 26
    unit = words.time_unit(report.device_seconds)
    for share in report.shares:
        if share.seconds > 0:
            yield _bar_of(share, longest, room, unit)


def _bar_of(share: Share, longest: int, room: int, unit: str) -> StyledLine:
    return [
        (f"  {share.bucket:{longest}} ", ""),
        *bar(share.share, room, BUCKET_STYLES.get(share.bucket, "white")),
        (f" {words.percent(share.share):>7} {words.amount(share.seconds, unit):>8} {unit[0]}", ""),
    ]


def bar(share: float, room: int, style: str) -> list[Span]:
    """`[█████▍    ]`, `room` columns between the brackets. What is not zero shows at least an eighth of a block."""
    eighths = min(8 * room, max(1 if share > 0 else 0, round(share * 8 * room)))
    filled = "█" * (eighths // 8) + _EIGHTHS[eighths % 8]
    return [("[", "bright_black"), (filled, style), (" " * (room - len(filled)), ""), ("]", "bright_black")]


def _usage(report: RunReport, width: int) -> Iterator[StyledLine]:
    if not report.usage:
        return
    yield title("Use of what was allocated", width)
    longest = max(len(usage.name) for usage in report.usage)
    detail = max(len(usage.detail) for usage in report.usage)
    room = max(10, width - longest - detail - 7)
    for usage in report.usage:
        yield [(f"  {usage.name:{longest}} ", ""), *_usage_bar(usage, room), (f" {usage.detail}", "")]


def _usage_bar(usage: Usage, room: int) -> list[Span]:
    if isinstance(usage.share, str):
        return [("[", "bright_black"), (usage.share.center(room)[:room], "bright_black"), ("]", "bright_black")]
    return bar(min(1.0, usage.share), room, "cyan")


def _nodes(report: RunReport, width: int) -> Iterator[StyledLine]:
    rows = report.node_rows
    if not rows:
        return
    keys = [key for key in COLUMNS if any(not isinstance(report.reading(row, key), str) for row in rows)]
    keys = keys[:_MOST_COLUMNS]
    shown = rows[:MOST_NODES]
    aside = f"the {len(shown)} oddest of {len(rows):,}" if len(rows) > len(shown) else ""
    yield title("Nodes: means while it ran", width, aside)
    header = [["NODE", *_heads(keys), ""]]
    cells = [
        [one_line(row.node), *(words.reading(report.reading(row, key), key) for key in keys), one_line(row.remark)]
        for row in shown
    ]
    for index, line in enumerate(aligned(header + cells)):
        yield [(f"  {line}", "bright_black" if not index else "yellow" if shown[index - 1].remark else "")]


def _heads(keys: Iterable[str]) -> list[str]:
    short = {
        "memory": "GPU MEM",
        "host_memory": "HOST MEM",
        "power": "POWER",
        "temperature": "HOTTEST",
        "input": "INPUT",
    }
    return [short.get(key, COLUMNS[key].title.upper().removesuffix(" ACTIVITY")) for key in keys]


def aligned(rows: list[list[str]]) -> Iterator[str]:
    """The rows in columns: the first and the last to the left, the others, which are numbers, to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        middle = [cell.rjust(size) for cell, size in zip(row[1:-1], widths[1:-1], strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), *middle, row[-1]]).rstrip()


def _attempts(report: RunReport, width: int) -> Iterator[StyledLine]:
    if not report.attempts:
        return
    shown = report.attempts[-_MOST_ATTEMPTS:]
    aside = f"the last {len(shown)} of {len(report.attempts):,}" if len(report.attempts) > len(shown) else ""
    yield title("Attempts", width, aside)
    for row in shown:
        number = f"  {row.number:<3}"
        ended = row.cause or ("runs" if row.end is None else "no cause known")
        style = "green" if row.cause == "finished" else "cyan" if row.end is None else "yellow"
        head: list[Span] = [(number, "bold"), (f"{words.moment(row.start)}  ", ""), (ended, style)]
        yield from wrapped(head, attempt_text(row, report.unit), width, 5, joint=": ")


def attempt_text(row: AttemptRow, unit: str) -> str:
    """What an attempt did and cost, in one line; its cause is told apart."""
    parts = [
        f"ran {words.span(row.seconds)}" if row.seconds is not None else "",
        words.device_time(row.device_seconds, unit) if row.device_seconds is not None else "",
        f"after {words.span(row.queued)} in the queue" if row.queued is not None else "",
        f"first new step after {words.span(row.restart)}" if row.restart is not None else "",
        f"steps {row.first_step or 0:,} → {row.last_step:,}" if row.last_step is not None else "",
        f"{row.steps_lost:,} lost" if row.steps_lost else "",
        one_line(row.error) if row.error else "",
    ]
    return ", ".join(filter(None, parts))


def _findings(report: RunReport, width: int) -> Iterator[StyledLine]:
    if not report.findings and not report.helped:
        return
    yield title("Findings", width)
    for line in report.helped:
        yield from wrapped([("  ", "")], one_line(line), width, 4)
    for finding in report.findings:
        yield from _finding(finding, report.unit, width)


def _finding(finding: Finding, unit: str, width: int) -> Iterator[StyledLine]:
    head: list[Span] = [(f"  {one_line(finding.name)}, ", ""), (finding.sure, _SURE.get(finding.sure, "yellow"))]
    yield from wrapped(head, one_line(finding.summary) + finding_cost(finding, unit), width, 4, joint=": ")
    for evidence in finding.evidence:
        yield from wrapped([("    · ", "bright_black")], one_line(evidence), width, 6)
    if finding.change:
        yield [("    → ", "green"), (one_line(finding.change), "green")]


def finding_cost(finding: Finding, unit: str) -> str:
    """` (costs 12.3 GPU-hours)`; "" where that is not known."""
    return "" if finding.cost is None else f" (costs {words.device_time(finding.cost * 3600, unit)})"


def _notes(report: RunReport, width: int) -> Iterator[StyledLine]:
    told = notes(report)
    if told:
        yield title("Notes", width)
    for note in told:
        yield from wrapped([("  · ", "bright_black")], one_line(note), width, 4)


def notes(report: RunReport) -> list[str]:
    """What is missing, estimated or provisional; and what could not be judged, by what was missing for it."""
    by_missing: dict[tuple[str, ...], list[str]] = {}
    for abstention in report.abstentions:
        by_missing.setdefault(abstention.missing, []).append(abstention.kind)
    return [
        *report.notes,
        *(f"not judged: {', '.join(kinds)}; missing: {', '.join(missing)}" for missing, kinds in by_missing.items()),
    ]


def wrapped(head: list[Span], text: str, width: int, indent: int, joint: str = "") -> Iterator[StyledLine]:
    """`head`, then `text`, wrapped at `width`; further lines begin in column `indent`."""
    used = sum(len(piece) for piece, _ in head)
    text = f"{joint}{text}" if text else ""
    pieces = textwrap.wrap(
        " " * used + text, width, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False,
        drop_whitespace=True,
    )  # fmt: skip
    first, rest = (pieces[0][used:], pieces[1:]) if pieces else ("", [])
    yield [*head, (first, "")]
    for piece in rest:
        yield [(piece, "")]
