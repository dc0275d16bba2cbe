"""Which ranks are traced, and for how long: by what their heartbeats say of their steps. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurmopt.errors import InputError, one_line
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.json_values import as_int, number
from slurmopt.run_folder.time_spent import exposed_communication

SLOWEST, MEDIAN, ALL = "slowest", "median", "all"
DEFAULT = (SLOWEST, MEDIAN, "0")
VALID = f"{SLOWEST}, {MEDIAN}, {ALL}, or numbers of ranks such as 0,3"
WITHOUT_STEPS = 1.0
"""Seconds of a trace if the training reports no steps."""
_SHORTEST = 0.2
"""Seconds of a trace for so many steps that they take less."""
_FEWEST_SAMPLES = 10
_LONGEST_NUMBER = 8


@dataclass(frozen=True)
class Ranks:
    """The ranks of an attempt. A process of slurmopt writes one heartbeat, for `each` ranks that its command starts;
    `count` ranks in all, None if a launcher of the command's own decides that."""

    beats: Mapping[int, Heartbeat]
    each: int = 1
    count: int | None = None
    step_times: dict[int, float] = field(default_factory=dict)
    """Rank → the mean seconds of a step in this attempt, where it reports steps."""

    def beat_of(self, rank: int) -> Heartbeat | None:
        """The heartbeat of the process that starts the rank, as far as that is known."""
        return self.beats.get(rank // self.each)


def ranks_of(beats: Mapping[int, Heartbeat]) -> Ranks:
    """The ranks behind these heartbeats."""
    launched = {as_int(beat.launches) for beat in beats.values()}
    each = launched.pop() if len(launched) == 1 else None
    count = max((as_int(beat.world_size) or 0 for beat in beats.values()), default=0)
    times = {rank * (each or 1): 1 / rate for rank, beat in beats.items() if (rate := _rate(beat))}
    return Ranks(beats, each or 1, count * each if each and count > 0 else None, times)


def _rate(beat: Heartbeat) -> float | None:
    """Steps a second, from the first reported step of the attempt to the last one."""
    first, last = as_int(beat.first_step), as_int(beat.step)
    since, until = number(beat.first_step_time), number(beat.step_time)
    if first is None or last is None or since is None or until is None or until <= since or last <= first:
        return None
    return (last - first) / (until - since)


def chosen(words: list[str], ranks: Ranks) -> tuple[list[int], list[str]]:
    """The ranks that the words of `--ranks` name, and the words that name none because no rank reports steps. Raises
    InputError."""
    order = _slowest_last(ranks)
    found: list[int] = []
    unknown: list[str] = []
    for word in words:
        if word == ALL:
            found += range(_count(ranks))
        elif word in (SLOWEST, MEDIAN):
            if order:
                found.append(order[-1] if word == SLOWEST else order[(len(order) - 1) // 2])
            else:
                unknown.append(word)
        else:
            found.append(_numbered(word, ranks))
    return sorted(set(found)), unknown


def is_word(word: str) -> bool:
    """Whether `--ranks` takes the word."""
    return word in (SLOWEST, MEDIAN, ALL) or is_number(word)


def is_number(word: str) -> bool:
    """Whether it is the number of a rank."""
    return word.isascii() and word.isdecimal() and len(word) < _LONGEST_NUMBER


def _slowest_last(ranks: Ranks) -> list[int]:
    """The ranks that report steps, in the order of their speed. Ranks of a DDP training make their steps together: the
    slowest waits least for the gradients of the others, where DDP has measured that."""
    counted = {rank: beat.counted for rank, beat in ranks.beats.items() if isinstance(beat.counted, dict)}
    waits = {
        rank * ranks.each: exposed_communication(sums)
        for rank, sums in counted.items()
        if (number(sums.get("ddp_sampled")) or 0) >= _FEWEST_SAMPLES
    }
    if len(waits) == len(ranks.beats) > 1:
        return sorted(waits, key=lambda rank: (-waits[rank], -rank))
    return sorted(ranks.step_times, key=lambda rank: (ranks.step_times[rank], -rank))


def _numbered(word: str, ranks: Ranks) -> int:
    if not is_word(word):
        raise InputError(f"profile: --ranks {one_line(word)!r} is not valid; valid: {VALID}")
    if ranks.count is not None and int(word) >= ranks.count:
        raise InputError(f"profile: --ranks {word}: there is no such rank; valid: 0 to {ranks.count - 1}")
    return int(word)


def _count(ranks: Ranks) -> int:
    if ranks.count is None:
        raise InputError(
            "profile: --ranks all: how many ranks the command starts is not known; valid: numbers such as 0,1,2,3"
        )
    return ranks.count


def seconds_of(steps: int, step_times: Mapping[int, float]) -> float | None:
    """Seconds in which the slowest rank makes so many whole steps; None if no rank reports steps."""
    if not step_times:
        return None
    return max(_SHORTEST, (steps + 1) * max(step_times.values()))
