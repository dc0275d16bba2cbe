"""Puts runs or attempts side by side: configs where they differ, metrics, ledgers, speed with its uncertainty.

The speed is the mean of the step rates in the rows of the series, weighted by time, of rows that were spent on steps.
Its uncertainty is the 95 % interval by batch means: the rows of an attempt are cut into at most ten batches of
neighbours, whose means are independent enough even where neighbouring rows are not. It tells how well this run's mean
is known; two runs with the same config can differ by more, by their nodes and their neighbours.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurmopt.errors import RunError
from slurmopt.ledger.ledger import Account
from slurmopt.report.run import build
from slurmopt.report.run.run_report import Share
from slurmopt.report.run_record import RunRecord
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.series.series import Series
from slurmopt.runs.status.progress import from_heartbeat

_BATCHES, _FEWEST = 10, 4
_STUDENT = {3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}
"""Degrees of freedom → the 97.5 % quantile of Student's t distribution."""
_STEPPING = ("running", "input", "communication")
_LEAST_SHARE = 0.5
"""A row tells the step rate only if at least this share of it was spent on steps."""
_OF_A_LAUNCH = ("launch.id", "launch.run", "launch.wait", "launch.json", "launch.dry_run")
"""Keys that say nothing of the training."""


@dataclass(frozen=True)
class Speed:
    """Steps per second."""

    mean: float
    error: float | None
    """Half of the 95 % interval; None where there are too few rows."""
    rows: int
    """Of the series; 0: from the first and the last reported step alone."""


@dataclass
class Side:
    """A run, or one attempt of it."""

    label: str
    state: str
    unit: str = "GPU"
    device_seconds: float = 0.0
    shares: list[Share] = field(default_factory=list)
    speed: Speed | None = None
    seconds: float = 0.0
    """Of its attempts."""
    attempts: int = 0
    step: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class Comparison:
    """Several sides; the lists have a value for each."""

    sides: list[Side]
    config: dict[str, list[Any]] = field(default_factory=dict)
    """A key whose values differ → its values; null where a config does not have it."""
    ratios: list[tuple[float, float | None] | None] = field(default_factory=list)
    """Of each side: its speed as a multiple of the first one's, and half of the 95 % interval of that."""
    notes: list[str] = field(default_factory=list)


def compared(records: Sequence[tuple[RunRecord, int | None]]) -> Comparison:
    """The comparison of runs; where a number is given, of that attempt of the run. RunError where it has no such
    attempt."""
    sides = [_side(record, attempt) for record, attempt in records]
    comparison = Comparison(sides, differing([flat(record.config) for record, _ in records]))
    comparison.ratios = [_ratio(side.speed, sides[0].speed) for side in sides]
    comparison.notes = [f"{record.label}: {problem}" for record, _ in records for problem in record.problems]
    if len({side.unit for side in sides}) > 1:
        comparison.notes.append("some of them had GPUs and others none: their hours cannot be compared")
    if any(side.speed is not None and side.speed.error is None for side in sides):
        comparison.notes.append("a speed without ± is from too few rows of a series to tell how well it is known")
    return comparison


def _side(record: RunRecord, attempt: int | None) -> Side:
    if attempt is None:
        account: Account = record.ledger
        numbers = [one.number for one in record.attempts]
    else:
        found = next((one for one in record.ledger.attempts if one.number == attempt), None)
        if found is None:
            valid = ", ".join(str(one.number) for one in record.ledger.attempts) or "none"
            raise RunError(f"{record.label} has no attempt {attempt}; valid: {valid}")
        account, numbers = found, [attempt]
    side = Side(record.label + ("" if attempt is None else f"@{attempt}"), record.state, record.ledger.unit)
    side.device_seconds, side.shares = account.allocated / 1000, build.shares(account)
    side.attempts = len(numbers)
    side.seconds = sum(one.end - one.start for one in record.attempts if one.number in numbers)
    if attempt is not None and found is not None:
        side.state = found.cause or ("running" if found.alive else "ended")
    _add_progress(side, record, numbers)
    return side


def _add_progress(side: Side, record: RunRecord, numbers: Sequence[int]) -> None:
    with_beats = [number for number in numbers if record.heartbeats.get(number)]
    side.speed = speed([series for number in numbers for series in record.series.get(number, {}).values()])
    if not with_beats:
        _add_what_the_end_told(side, record, numbers)
        return
    beats = record.heartbeats[with_beats[-1]]
    beat = beats[min(beats)]
    progress = from_heartbeat(beat)
    side.step, side.metrics = progress.step, {**progress.metrics}
    if side.speed is None and (rate := rate_in_steps(beat)) is not None:
        side.speed = Speed(rate, None, 0)


def _add_what_the_end_told(side: Side, record: RunRecord, numbers: Sequence[int]) -> None:
    """Of a point of a sweep, whose heartbeats are removed at its end: what its `end` event has."""
    newest = next((one for one in reversed(record.attempts) if one.number in numbers), None)
    if newest is None:
        return
    if newest is record.attempts[-1]:
        side.step, side.metrics = record.status.progress.step, {**record.status.progress.metrics}
    rates = [_in_steps(rank.first_step, rank.step, rank.spent) for rank in newest.ranks]
    rate = next((rate for rate in rates if rate is not None), None)
    side.speed = side.speed if side.speed is not None or rate is None else Speed(rate, None, 0)


def rate_in_steps(beat: Heartbeat) -> float | None:
    """Steps per second of the time that a rank has spent on steps; None where it does not tell. Evaluations and saves
    are left out, as they are where a series tells."""
    return _in_steps(as_int(beat.first_step), as_int(beat.step), beat.spent if isinstance(beat.spent, dict) else {})


def _in_steps(first: int | None, last: int | None, spent: Mapping[str, Any]) -> float | None:
    stepping = sum(number(spent.get(what)) or 0.0 for what in _STEPPING)
    return (
        (last - first) / stepping if first is not None and last is not None and last > first and stepping > 0 else None
    )


def speed(series: Sequence[Series]) -> Speed | None:
    """The speed that the series of an attempt's nodes tell; None where no step rate was measured.

    All ranks make the same steps, so one rank of the first node that has one is enough.
    """
    for one in series:
        columns = sorted(one.columns("steps"))
        if columns:
            rows = _rows(one, columns[0].partition(".")[0])
            if rows:
                return _of_rows(rows)
    return None


def _rows(series: Series, rank: str) -> list[tuple[float, float]]:
    """(steps per second, seconds) of the rows that were spent on steps."""
    shares = [series.values[name] for what in _STEPPING if (name := f"{rank}.{what}.share") in series.values]
    found = []
    for row, (rate, seconds) in enumerate(zip(series.values[f"{rank}.steps"], series.seconds, strict=True)):
        stepping = sum(share[row] or 0.0 for share in shares) if shares else 1.0
        if rate is not None and rate > 0 and stepping >= _LEAST_SHARE and seconds * stepping > 0:
            found.append((rate / stepping, seconds * stepping))
    return found


def _of_rows(rows: Sequence[tuple[float, float]]) -> Speed:
    whole = sum(seconds for _, seconds in rows)
    mean = sum(rate * seconds for rate, seconds in rows) / whole
    batches = min(_BATCHES, len(rows))
    if batches < _FEWEST:
        return Speed(mean, None, len(rows))
    means = []
    for batch in range(batches):
        part = rows[batch * len(rows) // batches : (batch + 1) * len(rows) // batches]
        means.append(sum(rate * seconds for rate, seconds in part) / sum(seconds for _, seconds in part))
    error = _STUDENT[batches - 1] * statistics.stdev(means) / math.sqrt(batches)
    return Speed(mean, error, len(rows))


def _ratio(speed: Speed | None, first: Speed | None) -> tuple[float, float | None] | None:
    if speed is None or first is None or first.mean <= 0 or speed.mean <= 0:
        return None
    ratio = speed.mean / first.mean
    if speed.error is None or first.error is None:
        return ratio, None
    return ratio, ratio * math.hypot(speed.error / speed.mean, first.error / first.mean)


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of a config by their dotted keys."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        key = f"{prefix}{text(name) or name}"
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{key}.")
        else:
            found[key] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    """A value of a config as JSON has it: YAML has dates, bytes and sets too, and keys that are no texts."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def differing(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The keys whose values are not the same in all configs that could be read; an empty one could not."""
    keys = dict.fromkeys(key for config in configs for key in config if key not in _OF_A_LAUNCH)
    known = [config for config in configs if config]
    return {
        key: [config.get(key) for config in configs]
        for key in keys
        if not all(_same(config.get(key), known[0].get(key)) for config in known)
    }


def _same(one: Any, other: Any) -> bool:
    return bool(one == other and (number(one) is None) == (number(other) is None))
