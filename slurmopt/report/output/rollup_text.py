"""The report on many runs as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from slurmopt.errors import one_line
from slurmopt.report.output import text
from slurmopt.report.output.terminal import StyledLine
from slurmopt.report.rollup import RollUp, Spread
from slurmopt.report.run import words

MOST_ROWS = 15
_LONGEST = 100
"""Characters of a cause."""


def lines(rollup: RollUp, width: int) -> list[StyledLine]:
    """The whole report."""
    sections = [
        list(_head(rollup, width)),
        list(text.ledger_lines(rollup, width)),
        list(_groups(rollup, width)),
        list(_members(rollup, width)),
        list(_notes(rollup, width)),
    ]
    result: list[StyledLine] = []
    for section in filter(None, sections):
        result += [[], *section] if result else section
    return result


def _head(rollup: RollUp, width: int) -> Iterator[StyledLine]:
    yield [(one_line(rollup.title), "bold")]
    for name, value in facts(rollup):
        yield from text.wrapped([(f"  {name:11}", "bright_black")], value, width, 13)


def facts(rollup: RollUp) -> list[tuple[str, str]]:
    """The lines of the header that have something to say; for the page too."""
    states = ", ".join(f"{count:,} {state}" for state, count in rollup.states.items() if count)
    known = [
        ("runs", f"{rollup.runs:,}{_of_sweeps(rollup)}" + (f": {states}" if states else "")),
        ("since", words.moment(rollup.since) if rollup.since is not None else ""),
        ("completed", _completed(rollup)),
        ("attempts", f"{rollup.attempts:,}{_causes(rollup)}" if rollup.attempts else ""),
        ("recovery", _spread(rollup.recovery, "from an attempt's end to the next one's first new step")),
        ("queue", _spread(rollup.first_wait, "before the first start")),
        ("", _spread(rollup.restart_wait, "before a restart")),
        ("cost", words.cost_of(rollup.cost, rollup.device_seconds, rollup.unit) if rollup.device_seconds else ""),
        ("energy", words.energy(rollup.cost)),
    ]
    return [(name, value) for name, value in known if value]


def _of_sweeps(rollup: RollUp) -> str:
    if not rollup.sweeps:
        return ""
    return f", with the points of {rollup.sweeps:,} {'sweep' if rollup.sweeps == 1 else 'sweeps'}"


def _completed(rollup: RollUp) -> str:
    rate = rollup.completion_rate
    return "" if rate is None else f"{words.percent(rate)} of those that have ended"


def _causes(rollup: RollUp) -> str:
    shown = [f"{one_line(cause)[:_LONGEST]} {count:,}" for cause, count in list(rollup.causes.items())[:MOST_ROWS]]
    more = [f"and {len(rollup.causes) - MOST_ROWS:,} more"] if len(rollup.causes) > MOST_ROWS else []
    return f"; they ended by: {', '.join([*shown, *more])}" if shown else ""


def _spread(spread: Spread | None, what: str) -> str:
    if spread is None:
        return ""
    if spread.count == 1:
        return f"{words.span(spread.median)} {what} (once)"
    return (
        f"{words.span(spread.median)} {what} (median of {spread.count:,}; one in ten over {words.span(spread.p90)}, "
        f"at most {words.span(spread.most)})"
    )


def _groups(rollup: RollUp, width: int) -> Iterator[StyledLine]:
    unit = words.time_unit(rollup.device_seconds)
    rows = [
        [one_line(group.name), f"{group.runs:,}", f"{group.finished:,}", words.amount(group.device_seconds, unit),
         words.percent(group.compute), _money(group.cost, rollup), ""]
        for group in rollup.groups[:MOST_ROWS]
    ]  # fmt: skip
    header = ["EXPERIMENT", "RUNS", "FINISHED", *_amounts(rollup, unit)]
    yield from _table("By experiment", header, rows, len(rollup.groups), width)


def _members(rollup: RollUp, width: int) -> Iterator[StyledLine]:
    unit = words.time_unit(rollup.device_seconds)
    used = [member for member in rollup.members if member.device_seconds]
    rows = [
        [one_line(member.label), member.state, f"{member.attempts:,}", words.amount(member.device_seconds, unit),
         words.percent(member.compute), _money(member.cost, rollup), ""]
        for member in used[:MOST_ROWS]
    ]  # fmt: skip
    cells = [["RUN", "STATE", "ATTEMPTS", *_amounts(rollup, unit)], *rows]
    for column in ("ATTEMPTS", "COMPUTE"):  # names are never cut
        if sum(max(map(len, values)) + 2 for values in zip(*cells, strict=True)) - 2 > width:
            at = cells[0].index(column)
            cells = [[*row[:at], *row[at + 1 :]] for row in cells]
    yield from _table("The largest", cells[0], cells[1:], len(used), width)


def _amounts(rollup: RollUp, unit: str) -> list[str]:
    cost = "" if rollup.cost.amount is None else "COST"
    return [f"{rollup.unit}-{unit}".upper(), "COMPUTE", cost, ""]


def _table(title: str, header: list[str], rows: list[list[str]], count: int, width: int) -> Iterator[StyledLine]:
    if not rows:
        return
    yield text.title(title, width, f"{len(rows)} of {count:,}" if count > len(rows) else "")
    for index, line in enumerate(text.aligned([header, *rows])):
        yield [(f"  {line}", "" if index else "bright_black")]


def _money(amount: float | None, rollup: RollUp) -> str:
    return "" if amount is None else words.money(amount, rollup.cost.currency)


def _notes(rollup: RollUp, width: int) -> Iterator[StyledLine]:
    if rollup.notes:
        yield text.title("Notes", width)
    for note in rollup.notes:
        yield from text.wrapped([("  · ", "bright_black")], one_line(note), width, 4)
