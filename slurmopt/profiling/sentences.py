"""What a profile says, in sentences. Each has the rows that it follows from."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from slurmopt.profiling import breakdown as parts
from slurmopt.profiling.analysis import Profile, RankProfile
from slurmopt.profiling.operations import Operation, of_tensor_cores
from slurmopt.profiling.roofline import roofline
from slurmopt.profiling.wording import Sentence, calls_text, duration, shown

_NOTABLE = 0.05
"""A share of the time below this is not worth a sentence."""
_LAUNCH_BOUND_SHORT, _LAUNCH_BOUND_IDLE = 0.5, 0.15
_MOST_OF = 0.6
_DEVIATIONS, _SLOWER = 3.0, 1.2
"""A step is slow if it takes this many deviations (MAD) and this many times the median."""
_MAD_TO_SIGMA = 1.4826


def sentences(profile: Profile) -> list[Sentence]:
    """The time of a step and the rank that others wait for, the rest by its share, and what is not explained."""
    slowest = slowest_rank(profile)
    found = [
        *_communication(slowest),
        *_idle(slowest),
        *_copies(slowest),
        *_launch_bound(slowest),
        *_slow_step(slowest),
    ]
    ordered = sorted(found, key=lambda sentence: -sentence.share)
    first = [_summary(profile, slowest), *_straggler(profile)]
    return [*first, *ordered, *_tensor_cores(slowest), *roofline(slowest), _unexplained(slowest)]


def slowest_rank(profile: Profile) -> RankProfile:
    """The traced rank whose own work takes longest: all ranks of a training need the same time for a step, and most of
    them spend some of it waiting for this one."""
    return max(profile.ranks, key=lambda one: _busy(one) / one.breakdown.seconds if one.breakdown.seconds else 0.0)


def _busy(one: RankProfile) -> float:
    return one.breakdown.seconds - one.breakdown.shares.get(parts.EXPOSED, 0.0)


def _summary(profile: Profile, one: RankProfile) -> Sentence:
    whole = one.breakdown
    steps = f"{whole.steps} step{'s' if whole.steps > 1 else ''}" if whole.steps else "no whole step"
    time = f", {duration(whole.seconds / whole.steps)} each" if whole.steps else f", {duration(whole.seconds)}"
    compute = whole.shares.get(parts.COMPUTE, 0.0) / whole.seconds
    what = "the GPU computes" if whole.has_device else "operators of the CPU run"
    others = f" of rank {one.rank}" if len(profile.ranks) > 1 else ""
    return Sentence(
        f"{steps}{others}{time}: {what} {compute:.0%} of the time",
        1.0,
        [f"rank {one.rank}: {row}" for row in shares_text(one)],
    )


def _straggler(profile: Profile) -> Iterator[Sentence]:
    late = profile.straggler
    if late is None or late.last < _MOST_OF * late.collectives:
        return
    whole = next(one.breakdown for one in profile.ranks if one.rank == late.rank)
    share = late.waited / whole.seconds
    if share < _NOTABLE:
        return
    traced = "" if profile.world_size in (None, len(profile.ranks)) else " of those traced"
    a_step = f" ({duration(late.waited / whole.steps)} a step)" if whole.steps else ""
    text = (
        f"rank {late.rank} is the slowest{traced}: it starts {late.last} of {late.collectives} collectives last, "
        f"and the others wait {share:.0%} of the time for it{a_step}"
    )
    yield Sentence(text, share, [f"most by {shown(late.slowest)}", *_why_late(profile, late.rank)])


def _why_late(profile: Profile, rank: int) -> Iterator[str]:
    """What it spends more time with than the others do."""
    own = next(one for one in profile.ranks if one.rank == rank).breakdown
    others = [one.breakdown for one in profile.ranks if one.rank != rank]
    names = (set(own.shares) | {name for other in others for name in other.shares}) - {parts.EXPOSED}
    more = {
        name: own.shares.get(name, 0.0) / own.seconds
        - statistics.median(other.shares.get(name, 0.0) / other.seconds for other in others)
        for name in names
    }
    name = max(sorted(more), key=lambda name: more[name], default=None)
    if name is not None and more[name] > _NOTABLE / 2:
        share = own.shares[name] / own.seconds
        yield f"rank {rank}: {share:.0%} {_of_idle(name)}, {100 * more[name]:.0f} points more than the others"


def _communication(one: RankProfile) -> Iterator[Sentence]:
    whole = one.breakdown
    exposed = whole.shares.get(parts.EXPOSED, 0.0)
    if exposed < _NOTABLE * whole.seconds:
        return
    hidden = whole.hidden / whole.communication if whole.communication else 0.0
    text = (
        f"rank {one.rank} waits for communication {exposed / whole.seconds:.0%} of the time; {hidden:.0%} of the "
        "communication is hidden behind compute"
    )
    yield Sentence(text, exposed / whole.seconds, [
        f"communication in flight {duration(whole.communication)}, exposed {duration(exposed)}",
        *(operation_text(each, whole.steps) for each in one.operations if parts.names_collective(each.name))][:4],
    )  # fmt: skip


def _idle(one: RankProfile) -> Iterator[Sentence]:
    whole = one.breakdown
    for name, seconds in whole.shares.items():
        share = seconds / whole.seconds
        if name not in (parts.COMPUTE, parts.EXPOSED, parts.COPIES) and share >= _NOTABLE:
            what = "the GPU is idle" if whole.has_device else "no operator runs"
            yield Sentence(
                f"{what} {share:.0%} of the time{_because(name, whole.has_device)}",
                share,
                [f"rank {one.rank}: {_of_idle(name)} {duration(seconds)}" + _a_step(seconds, whole.steps)],
            )


def _because(name: str, has_device: bool) -> str:
    if name == parts.INPUT:
        return ": the training waits for its DataLoader. slurmopt status shows the wait of the whole run"
    if name == parts.SYNCHRONIZATION:
        return ": the host waits for it (.item(), a copy to the host, synchronize) and only then launches more"
    if name == parts.HOST and has_device:
        return ": the host launches its next kernel too late, busy with Python or other work of its own"
    if name == parts.HOST:
        return ": Python code, input or waiting; marks by slurmopt.phase or record_function would tell which"
    if name == parts.DEVICE_GAPS:
        return ": kernels that are launched wait for another stream, or for the device to start them"
    if name == parts.UNKNOWN:
        return ": the trace has no launch for the kernels that follow"
    return f", in {shown(name)}"


def _of_idle(name: str) -> str:
    known = {
        parts.INPUT: "input wait", parts.SYNCHRONIZATION: "waits of the host for the device",
        parts.HOST: "time of the host without an operator or launch",
        parts.DEVICE_GAPS: "gaps between launched kernels",
        parts.UNKNOWN: "idle time without a known reason", parts.COMPUTE: "compute", parts.COPIES: "copies",
    }  # fmt: skip
    return known.get(name, f"time in {shown(name)} without an operator or launch")


def _copies(one: RankProfile) -> Iterator[Sentence]:
    whole = one.breakdown
    seconds = whole.shares.get(parts.COPIES, 0.0)
    if seconds >= _NOTABLE * whole.seconds:
        yield Sentence(
            f"the GPU only copies memory {seconds / whole.seconds:.0%} of the time: pinned memory and non_blocking "
            "copies on another stream hide them",
            seconds / whole.seconds,
            [f"rank {one.rank}: copies that nothing hides {duration(seconds)}" + _a_step(seconds, whole.steps)],
        )


def _launch_bound(one: RankProfile) -> Iterator[Sentence]:
    found, whole = one.launches, one.breakdown
    idle = whole.shares.get(parts.HOST, 0.0) / whole.seconds
    if found is None or found.short < _LAUNCH_BOUND_SHORT or idle < _LAUNCH_BOUND_IDLE:
        return
    yield Sentence(
        f"the training is launch-bound: {found.short:.0%} of the kernels take less time than their launch; "
        "torch.compile, CUDA graphs, fused optimizers or a larger micro-batch launch fewer",
        idle,
        [
            f"{found.kernels:,} kernels" + ("" if found.per_step is None else f", {found.per_step:,.0f} a step"),
            f"median kernel {duration(found.median_kernel)}, median launch {duration(found.median_launch)}",
        ],
    )


def _slow_step(one: RankProfile) -> Iterator[Sentence]:
    """A step that is much slower than the others, and what it has more of than the steps before and after it."""
    steps = one.breakdown.by_step
    times = [sum(step.values()) for step in steps]
    if len(times) < 4:
        return
    middle = statistics.median(times)
    if middle <= 0:
        return
    spread = _MAD_TO_SIGMA * statistics.median(abs(time - middle) for time in times)
    at = max(range(len(times)), key=lambda at: times[at])
    if times[at] < max(middle + _DEVIATIONS * spread, _SLOWER * middle):
        return
    near = [steps[other] for other in (at - 1, at + 1) if 0 <= other < len(steps)]
    more = {
        name: steps[at].get(name, 0.0) - statistics.mean(other.get(name, 0.0) for other in near) for name in steps[at]
    }
    name = max(more, key=lambda name: more[name])
    yield Sentence(
        f"step {at + 1} of the trace takes {times[at] / middle:.1f} times the median: {duration(more[name])} more "
        f"{_of_idle(name) if name != parts.EXPOSED else 'exposed communication'} than the steps beside it",
        (times[at] - middle) / sum(times),
        [f"steps: {', '.join(duration(time) for time in times[:12])}" + (" …" if len(times) > 12 else "")],
    )


def _tensor_cores(one: RankProfile) -> Iterator[Sentence]:
    whole = sum(each.seconds for each in one.operations)
    if not one.breakdown.has_device or not whole:
        return
    found = of_tensor_cores(one.operations)
    share = sum(each.seconds for each in found) / whole
    yield Sentence(
        f"kernels whose names are those of tensor cores take {share:.0%} of all kernels' time", share,
        [operation_text(each, one.breakdown.steps) for each in found[:3]],
    )  # fmt: skip


def _unexplained(one: RankProfile) -> Sentence:
    share = one.breakdown.unexplained / one.breakdown.seconds
    return Sentence(f"{share:.0%} of the time of rank {one.rank} is not explained by the trace", share)


def shares_text(one: RankProfile) -> list[str]:
    """A row for each share, the largest first."""
    whole = one.breakdown
    ordered = sorted(whole.shares.items(), key=lambda item: -item[1])
    return [f"{shown(name)} {seconds / whole.seconds:.1%}" for name, seconds in ordered if seconds > 0]


def operation_text(one: Operation, steps: int) -> str:
    """A row for a kernel or an operator."""
    return f"{shown(one.name)}: {duration(one.seconds)}, {calls_text(one.calls, steps)}, {duration(one.mean)} each"


def _a_step(seconds: float, steps: int) -> str:
    return f", {duration(seconds / steps)} a step" if steps else ""
