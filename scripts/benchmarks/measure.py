"""Wall time and peak memory of commands, side by side: A B A B …, so that a busy moment hits all of them."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TIMED = Path(__file__).with_name("timed.py")
TIMEOUT = 120.0


class BenchError(Exception):
    """Something could not be measured at all."""


@dataclass(frozen=True)
class Sample:
    """One run of a command, its children's peak included."""

    seconds: float
    peak_mib: float | None = None


def nothing() -> None:
    """Before or after a case that needs nothing."""


@dataclass(frozen=True)
class Case:
    """A command to be timed."""

    name: str
    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    before: Callable[[], None] = nothing
    """Not timed."""
    after: Callable[[], None] = nothing
    """Not timed."""
    until: Path | None = None
    """Timed until submitit's submission file appears here; None is until the command ends."""
    patience: float = TIMEOUT
    """Seconds that it may take at most."""


Samples = dict[str, list[Sample]]


def side_by_side(cases: Sequence[Case], runs: int) -> Samples:
    """`runs` samples of each case, after one run of each that does not count: it fills the caches."""
    for case in cases:
        once(case)
    measured: Samples = {case.name: [] for case in cases}
    for _ in range(runs):
        for case in cases:
            measured[case.name].append(once(case))
    return measured


def once(case: Case) -> Sample:
    """Runs the case and returns what it took; BenchError where it fails."""
    case.before()
    try:
        return _timed(case)
    finally:
        case.after()


def _timed(case: Case) -> Sample:
    argv = [sys.executable, "-I", "-S", str(TIMED), str(case.until or ""), *case.argv]
    done = subprocess.run(
        argv,
        cwd=case.cwd,
        env=dict(case.env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=case.patience,
        check=False,
    )
    words = done.stdout.split()
    if len(words) != 3 or words[2] != "0":
        raise BenchError(f"{' '.join(case.argv)} ended with {words[2:] or done.returncode}\n{done.stderr[-2000:]}")
    return Sample(float(words[0]), float(words[1]))


def median(samples: Sequence[Sample]) -> float:
    """Of their seconds."""
    return statistics.median(sample.seconds for sample in samples)


def ratio(samples: Sequence[Sample], base: Sequence[Sample]) -> float:
    """The median, over the rounds, of one round's ratio."""
    return statistics.median(one.seconds / other.seconds for one, other in zip(samples, base, strict=True))


def more(samples: Sequence[Sample], base: Sequence[Sample]) -> float:
    """The median, over the rounds, of one round's difference, in seconds."""
    return statistics.median(one.seconds - other.seconds for one, other in zip(samples, base, strict=True))
