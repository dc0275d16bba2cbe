"""When a run would end, by the wait of each of its attempts: what a plan compares partitions and time limits by."""

from __future__ import annotations

import pytest

from slurmopt.commands.plan.shapes.waits import Ask, Option, Wait, earliest
from slurmopt.planning.ranges import Range

HOUR = 3600.0


def option(name: str, wait: float | None, limit: float | None) -> Option:
    return Option(ask=Ask(name, None), wait=Wait(wait, "a hint"), limit=limit)


def test_each_attempt_after_a_time_limit_waits_again() -> None:
    """10 h of training: with 4 h and waits of 1 h three attempts, 13 h; with a day and 5 h of wait 15 h."""
    run = Range(10 * HOUR, 10 * HOUR)
    short, long = option("short", HOUR, 4 * HOUR), option("long", 5 * HOUR, 24 * HOUR)
    assert short.finish(run) == (13 * HOUR, 13 * HOUR)
    assert long.finish(run) == (15 * HOUR, 15 * HOUR)
    assert earliest([long, short], run) is short
    assert earliest([long, short], Range(30 * HOUR, 30 * HOUR)) is short, "8 h of waits against 10"
    assert earliest([long, option("short", 2 * HOUR, 4 * HOUR)], Range(30 * HOUR, 30 * HOUR)) is long, "16 h against 10"


def test_p50_and_p90_are_those_of_the_run() -> None:
    found = option("a", 60.0, None).finish(Range(100.0, 400.0))
    assert found is not None
    assert found[0] == pytest.approx(200 + 60)
    assert found[1] == pytest.approx(Range(100.0, 400.0).quantile(0.9) + 60)


def test_what_slurm_does_not_tell_comes_last() -> None:
    unknown, known = option("unknown", None, HOUR), option("known", 900.0, HOUR)
    assert earliest([unknown, known], Range(HOUR, HOUR)) is known
    assert earliest([unknown, known], None) is known, "without a time of the run the one that starts first"
    assert unknown.finish(Range(HOUR, HOUR)) is None
    assert earliest([option("a", 5.0, None), option("b", 1.0, None)], None).ask.partition == "b"
