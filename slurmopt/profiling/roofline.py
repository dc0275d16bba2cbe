"""Says where the matrix products of a rank are below the roofline of its GPU."""

from __future__ import annotations

from collections.abc import Iterator

from slurmopt.profiling.analysis import RankProfile
from slurmopt.profiling.matrix_products import Product
from slurmopt.profiling.wording import Sentence, calls_text, duration

_TOP = 5


def roofline(one: RankProfile) -> Iterator[Sentence]:
    """The rate of all products whose shapes are known, and the rows of those that take longest."""
    whole = sum(each.seconds for each in one.operations)
    if not one.products or not whole:
        return
    seconds = sum(each.seconds for each in one.products)
    rate = sum(each.operations * each.calls for each in one.products) / seconds
    share = seconds / whole
    yield Sentence(
        f"matrix products take {share:.0%} of all kernels' time, and reach {_tera(rate)}{_of_peak(one)}",
        share,
        [_row(each, one) for each in one.products[:_TOP]],
    )


def _of_peak(one: RankProfile) -> str:
    """What part of their time they would take at the peak of their types; of those whose peak is known."""
    known = [(each, peak) for each in one.products if (peak := each.peak(one.device)) is not None]
    if not known:
        return ""
    ideal = sum(each.operations * each.calls / peak for each, peak in known)
    types = " and ".join(sorted({each.type for each, _ in known}))
    return f", {ideal / sum(each.seconds for each, _ in known):.0%} of what the GPU can do in {types}"


def _row(each: Product, one: RankProfile) -> str:
    batch = f"{each.batch:,} times " if each.batch > 1 else ""
    calls = calls_text(each.calls, one.breakdown.steps)
    return (
        f"{each.operator} {batch}{each.m:,}x{each.k:,} by {each.k:,}x{each.n:,} {each.type}: {_tera(each.rate)}"
        f"{_below(each, one.device)}; {calls}, {duration(each.seconds / each.calls)} each"
    )


def _below(each: Product, device: str | None) -> str:
    peak, limit = each.peak(device), each.limit(device)
    if peak is None or limit is None:
        return ""
    bound = "compute-bound" if limit == peak else "memory-bound"
    return f", {each.rate / limit:.0%} of what {each.intensity:,.0f} operations a byte allow ({bound})"


def _tera(rate: float) -> str:
    return f"{rate / 1e12:,.3g} TFLOP/s"
