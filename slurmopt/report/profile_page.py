"""The profile of a run as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slurmopt.profiling import breakdown as parts
from slurmopt.profiling.analysis import Profile, RankProfile
from slurmopt.profiling.collectives import Collective
from slurmopt.profiling.sentences import slowest_rank
from slurmopt.profiling.wording import Sentence, duration, shown
from slurmopt.report.output.page import render
from slurmopt.run_folder.access.files import replace_text

_TOP = 40
_MOST_STEPS = 60
_CLASSES = {
    parts.COMPUTE: "b-compute", parts.EXPOSED: "b-exposed-communication", parts.COPIES: "b-restore",
    parts.INPUT: "b-waiting-for-input", parts.SYNCHRONIZATION: "b-stalled", parts.HOST: "b-held-by-no-rank",
    parts.DEVICE_GAPS: "b-winding-down", parts.UNKNOWN: "b-unknown",
}  # fmt: skip
_OF_MARKS = "b-evaluation-and-named-phases"


def write(name: str, profile: Profile, said: Sequence[Sentence], path: Path) -> None:
    """Writes the page; private, as names in a trace may tell what is trained. OSError where that fails."""
    replace_text(path, page_of(name, profile, said), mode=0o600)


def page_of(name: str, profile: Profile, said: Sequence[Sentence]) -> str:
    """The page."""
    slowest = slowest_rank(profile)
    return render(
        "profile.html.j2",
        ("report.css", "profile.css"),
        (),
        title=f"Profile of {name}",
        tiles=_tiles(slowest),
        sentences=said,
        keys=_keys(profile),
        ranks=[(f"rank {one.rank}", _facts(one), _bar(one.breakdown.shares)) for one in profile.ranks],
        slowest=slowest.rank,
        steps=[(f"{at + 1}", duration(sum(step.values())), _bar(step)) for at, step in enumerate(_steps(slowest))],
        longest=max((sum(step.values()) for step in _steps(slowest)), default=1.0),
        has_device=slowest.breakdown.has_device,
        operations=_operations(slowest),
        collectives=_collectives(profile.collectives),
        rank_numbers=[one.rank for one in profile.ranks],
    )


def _tiles(one: RankProfile) -> list[tuple[str, str]]:
    whole = one.breakdown
    step = [] if one.step_seconds is None else [(duration(one.step_seconds), f"a step, of {whole.steps}")]
    return [
        *step,
        (f"{whole.shares.get(parts.COMPUTE, 0.0) / whole.seconds:.0%}", "compute"),
        (f"{whole.shares.get(parts.EXPOSED, 0.0) / whole.seconds:.0%}", "exposed communication"),
        (f"{whole.idle / whole.seconds:.0%}", "idle"),
        (f"{whole.unexplained / whole.seconds:.0%}", "not explained"),
    ]


def _keys(profile: Profile) -> list[tuple[str, str]]:
    names = {name for one in profile.ranks for name in one.breakdown.shares}
    return [(shown(name), _class(name)) for name in [*_CLASSES, *sorted(names - set(_CLASSES))] if name in names]


def _class(name: str) -> str:
    return _CLASSES.get(name, _OF_MARKS)


def _facts(one: RankProfile) -> str:
    step = "" if one.step_seconds is None else f"{duration(one.step_seconds)} a step"
    return ", ".join(filter(None, [shown(one.device or ""), step]))


def _bar(shares: dict[str, float]) -> list[tuple[str, str, float]]:
    """Words, class, and seconds of each part."""
    ordered = sorted(shares, key=lambda name: [*_CLASSES, name].index(name))
    whole = sum(shares.values())
    return [
        (f"{shown(name)}: {duration(shares[name])}, {shares[name] / whole:.1%}", _class(name), shares[name])
        for name in ordered
        if shares[name] > 0
    ]


def _steps(one: RankProfile) -> list[dict[str, float]]:
    return one.breakdown.by_step[:_MOST_STEPS]


def _operations(one: RankProfile) -> list[tuple[str, str, str, str, str]]:
    whole = sum(each.seconds for each in one.operations) or 1.0
    steps = one.breakdown.steps
    return [
        (
            each.name[:300],
            duration(each.seconds),
            f"{each.seconds / whole:.1%}",
            f"{each.calls / steps:,.1f}" if steps else f"{each.calls:,}",
            duration(each.mean),
        )
        for each in one.operations[:_TOP]
    ]


def _collectives(found: Sequence[Collective]) -> list[tuple[str, int, str, list[str]]]:
    """Those by which most is lost: name, last rank, its lateness, the start on each rank."""
    ordered = sorted(found, key=lambda one: -one.lateness)[:_TOP]
    return [
        (shown(one.name), one.last, duration(one.lateness), [duration(start) for start in one.starts.values()])
        for one in ordered
    ]
