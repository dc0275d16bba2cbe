"""What text, page and picture of a recording share: its rows and fits, and numbers in words."""

from __future__ import annotations

from collections.abc import Iterator

from slurmopt.collectives.alpha_beta import Fit, fit
from slurmopt.collectives.definitions import COLLECTIVES, busbw
from slurmopt.collectives.outliers import Outlier
from slurmopt.collectives.recording import Recording, Row
from slurmopt.errors import one_line
from slurmopt.units import human_bytes


def head(recording: Recording) -> str:
    """`4 ranks on 2 nodes (node1, node2), nccl, NVIDIA H100, torch 2.13.0`."""
    nodes = recording.nodes
    shown = ", ".join(nodes[:4]) + (" …" if len(nodes) > 4 else "")
    where = f"{len(nodes)} node{'s' if len(nodes) != 1 else ''} ({shown})"
    torch = f", torch {recording.torch}" if recording.torch else ""
    return one_line(f"{recording.world} ranks on {where}, {recording.backend}, {recording.device or 'unknown'}{torch}")


def collectives(recording: Recording) -> list[str]:
    """Those that were measured."""
    return [name for name in COLLECTIVES if any(row.collective == name for row in recording.rows)]


def main_rows(recording: Recording) -> Iterator[Row]:
    """Those of torch; of an output of nccl-tests those that are not in place."""
    own = any(row.source == "torch" for row in recording.rows)
    for name in collectives(recording):
        rows = recording.of(name, "torch" if own else "nccl-tests")
        yield from (row for row in rows if own or not row.in_place)


def fit_of(recording: Recording, name: str) -> Fit | None:
    """The fit of a collective; None with fewer than two sizes."""
    rows = [row for row in main_rows(recording) if row.collective == name]
    return fit([row.size for row in rows], [row.seconds for row in rows])


def fit_rows(recording: Recording) -> list[list[str]]:
    """Of each collective its name, α, β in GB/s, the relative error, and a remark."""
    found = [(name, fit_of(recording, name)) for name in collectives(recording)]
    return [
        [name, _alpha(one), _beta(one), f"{one.relative_error:.0%}", _remark(one)]
        for name, one in found
        if one is not None
    ]


def fit_curve(recording: Recording, name: str, points: int = 48) -> list[tuple[float, float]]:
    """(size, busbw in GB/s) along the fit, evenly on a logarithmic scale; [] where the fit means nothing."""
    found = fit_of(recording, name)
    rows = [row for row in main_rows(recording) if row.collective == name]
    if found is None or found.beta is None or found.alpha < 0 or not rows:
        return []
    first, last, world = rows[0].size, rows[-1].size, rows[0].world
    sizes = [first * (last / first) ** (at / (points - 1)) for at in range(points)]
    return [(size, busbw(name, int(size), found.alpha + size / found.beta, world)) for size in sizes]


def _alpha(found: Fit) -> str:
    error = "" if found.alpha_error is None else f" ± {duration(found.alpha_error)}"
    return f"{duration(found.alpha)}{error}"


def _beta(found: Fit) -> str:
    if found.beta is None:
        return "-"
    error = "" if found.beta_error is None else f" ± {rate(found.beta_error / 1e9)}"
    return f"{rate(found.beta / 1e9)}{error}"


def _remark(found: Fit) -> str:
    if found.alpha < 0:
        return "a latency below zero: these sizes do not tell it; measure smaller ones"
    if found.points == 2:
        return "two sizes: no error can be told"
    return f"bad fit, worst at {human_bytes(found.worst_size)}" if found.is_bad else ""


def outlier_text(one: Outlier) -> str:
    """`node3: latency 20.3 ms, 180 times the usual 0.11 ms, on 3 links`."""
    if one.measure == "latency":
        words = f"latency {duration(one.value)}, {one.factor:.1f} times the usual {duration(one.usual)}"
    else:
        value, usual = rate(one.value / 1e9), rate(one.usual / 1e9)
        words = f"bandwidth {value} GB/s, {1 / one.factor:.0%} of the usual {usual} GB/s"
    return one_line(f"{one.name}: {words}" + (f", on {one.links} links" if one.kind == "node" else ""))


def duration(seconds: float) -> str:
    """`35.2 µs`, `1.84 ms`, `2.1 s`."""
    for unit, factor in (("µs", 1e6), ("ms", 1e3)):
        if abs(seconds) * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def rate(value: float) -> str:
    """GB/s with two digits after the point, or four below 0.1."""
    return f"{value:.4f}" if abs(value) < 0.1 else f"{value:.2f}"
