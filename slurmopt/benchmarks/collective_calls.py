"""The calls of torch.distributed that are measured, on buffers whose right content is known.

Element i of rank r holds (i mod 251) + r before a call, so that a part at the wrong place or of the wrong rank is
noticed; sums of that are exact in float32 up to 5,000 ranks. Values are checked piece by piece, without a third buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from slurmopt.collectives.definitions import ELEMENT

_PERIOD = 251
_STRIDE = 13
"""Between the patterns of the parts that all_to_all sends to different ranks."""
_PIECE = 1 << 18
"""Elements that are checked at a time."""
ROOT = 0


@dataclass
class Call:
    """One collective on its buffers. `fill` writes the input, `run` is what is timed, `expected` gives the right
    content of `output` from an element on."""

    run: Callable[[], Any]
    fill: Callable[[], None]
    output: Any
    expected: Callable[[int, int], Any]
    """(first element, count) → the right values."""
    in_place: bool


def prepared(name: str, size: int, rank: int, world: int, device: Any) -> Call:
    """The call of the collective `name` with S = `size` bytes, which fit it."""
    return _MAKERS[name](_Place(size // ELEMENT, rank, world, device))


@dataclass(frozen=True)
class _Place:
    count: int
    rank: int
    world: int
    device: Any

    @property
    def part(self) -> int:
        return self.count // self.world

    def empty(self, count: int) -> Any:
        import torch

        return torch.empty(count, dtype=torch.float32, device=self.device)

    def pattern(self, first: int, count: int, offset: int = 0) -> Any:
        """((first + i + offset) mod 251) for `count` elements."""
        import torch

        start = (first + offset) % _PERIOD
        places = torch.arange(start, start + count, dtype=torch.int32, device=self.device)
        return places.remainder_(_PERIOD).to(torch.float32)

    def fill(self, buffer: Any, offset: int = 0) -> None:
        for first, count in _pieces(buffer.numel()):
            buffer[first : first + count] = self.pattern(first, count, offset).add_(self.rank)


def _pieces(count: int) -> Iterator[tuple[int, int]]:
    for first in range(0, count, _PIECE):
        yield first, min(_PIECE, count - first)


def _all_reduce(place: _Place) -> Call:
    import torch.distributed as dist

    buffer = place.empty(place.count)
    ranks = place.world * (place.world - 1) // 2

    def expected(first: int, count: int) -> Any:
        return place.pattern(first, count).mul_(place.world).add_(ranks)

    return Call(lambda: dist.all_reduce(buffer), lambda: place.fill(buffer), buffer, expected, True)


def _broadcast(place: _Place) -> Call:
    import torch.distributed as dist

    buffer = place.empty(place.count)

    def expected(first: int, count: int) -> Any:
        return place.pattern(first, count) + ROOT

    return Call(lambda: dist.broadcast(buffer, ROOT), lambda: place.fill(buffer), buffer, expected, True)


def _all_gather(place: _Place) -> Call:
    import torch.distributed as dist

    given, got = place.empty(place.part), place.empty(place.count)

    def fill() -> None:
        place.fill(given)
        got.zero_()

    def expected(first: int, count: int) -> Any:
        return _by_part(place, first, count, lambda source, start, size: place.pattern(start, size) + source)

    gather = _newest(dist, "all_gather_single", "all_gather_into_tensor")
    return Call(lambda: gather(got, given), fill, got, expected, False)


def _reduce_scatter(place: _Place) -> Call:
    import torch.distributed as dist

    given, got = place.empty(place.count), place.empty(place.part)
    ranks = place.world * (place.world - 1) // 2

    def fill() -> None:
        place.fill(given)
        got.zero_()

    def expected(first: int, count: int) -> Any:
        return place.pattern(place.rank * place.part + first, count).mul_(place.world).add_(ranks)

    scatter = _newest(dist, "reduce_scatter_single", "reduce_scatter_tensor")
    return Call(lambda: scatter(got, given), fill, got, expected, False)


def _all_to_all(place: _Place) -> Call:
    import torch.distributed as dist

    given, got = place.empty(place.count), place.empty(place.count)

    def fill() -> None:
        for peer in range(place.world):
            place.fill(given[peer * place.part : (peer + 1) * place.part], _STRIDE * peer)
        got.zero_()

    def expected(first: int, count: int) -> Any:
        offset = _STRIDE * place.rank
        return _by_part(place, first, count, lambda source, start, size: place.pattern(start, size, offset) + source)

    return Call(lambda: dist.all_to_all_single(got, given), fill, got, expected, False)


def _newest(dist: Any, name: str, earlier: str) -> Callable[..., Any]:
    """The function `name`, which torch before 2.13 calls `earlier`."""
    found: Callable[..., Any] = getattr(dist, name, None) or getattr(dist, earlier)
    return found


def _by_part(place: _Place, first: int, count: int, values: Callable[[int, int, int], Any]) -> Any:
    """What lies in parts, one of each rank: `values(source, place in its part, count)`."""
    import torch

    found, last = [], first + count
    while first < last:
        source, start = divmod(first, place.part)
        size = min(place.part - start, last - first)
        found.append(values(source, start, size))
        first += size
    return torch.cat(found)


_MAKERS: dict[str, Callable[[_Place], Call]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "broadcast": _broadcast,
    "all_to_all": _all_to_all,
}


def wrong_values(call: Call) -> tuple[int, str]:
    """How many elements of the output are wrong, and the first one in words."""
    wrong, fault = 0, ""
    for first, count in _pieces(call.output.numel()):
        got, right = call.output[first : first + count], call.expected(first, count)
        differs = got != right
        here = int(differs.sum())
        if here and not wrong:
            at = int(differs.nonzero()[0])
            fault = f"element {first + at:,} is {float(got[at]):.9g}, not {float(right[at]):.9g}"
        wrong += here
    return wrong, fault
