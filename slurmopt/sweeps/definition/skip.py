"""Applies `sweep.skip`: evaluates the condition once for each combination of the values that it reads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from slurmopt.config.composition.error_messages import translate
from slurmopt.errors import ConfigError
from slurmopt.grid.axes import Axis
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.points import Points
from slurmopt.grid.resolvers import hydra_answers
from slurmopt.grid.skip_condition import KEY, Condition, condition
from slurmopt.sweeps.definition.values import node_at

_MOST = 10_000_000
"""Evaluating more combinations than this would take minutes."""


def kept_places(points: Points, text: str) -> Ranges:
    """The places in the product of the axes where the condition is false. ConfigError where it is true for all."""
    skip = condition(text)
    lookup = _Lookup(points, skip.keys)
    outer = points.axes[: lookup.depth]
    if math.prod(map(len, outer)) > _MOST:
        raise ConfigError(f"would have to look at more than {_MOST} points", KEY)
    block = math.prod(map(len, points.axes[lookup.depth :]))
    ranges = Ranges(_spans(skip, lookup, outer, block))
    if not ranges:
        raise ConfigError(f"{text!r} leaves out all {points.product} points", KEY)
    return ranges


def _spans(skip: Condition, lookup: _Lookup, outer: Sequence[Axis], block: int) -> Iterator[tuple[int, int]]:
    """The ranges of kept places. The axes after the last one that matters form blocks that are kept or skipped
    whole."""
    answers: dict[tuple[int, ...], bool] = {}
    for place, indices in enumerate(itertools.product(*map(range, map(len, outer)))):
        key = tuple(indices[axis] for axis in lookup.matters)
        holds = answers.get(key)
        if holds is None:
            holds = answers[key] = skip.holds(lookup.values(indices))
        if not holds:
            yield place * block, (place + 1) * block - 1


class _Lookup:
    """Looks up the values of the condition's keys at a place in the product of the axes."""

    def __init__(self, points: Points, keys: Sequence[str]) -> None:
        self._points = points
        self._places = {
            column.key: (number, column) for number, axis in enumerate(points.axes) for column in axis.columns
        }
        constant = {key: self._constant(key) for key in keys if key not in self._places}
        self._answers = [self._answer(key, constant.get(key)) for key in keys]
        self.matters = self._axes_that_matter(keys, constant)
        self.depth = max(self.matters, default=-1) + 1

    def values(self, indices: Sequence[int]) -> list[Any]:
        return [answer(indices) for answer in self._answers]

    def _answer(self, key: str, constant: dict[int, Any] | None) -> Callable[[Sequence[int]], Any]:
        if key in self._places:
            number, column = self._places[key]
            return lambda indices: column.value(indices[number])
        if constant is not None:
            return lambda indices: constant[self._base(indices)]
        return lambda indices: self._computed(key, indices)

    def _axes_that_matter(self, keys: Sequence[str], constant: dict[str, dict[int, Any] | None]) -> list[int]:
        if any(held is None for held in constant.values()):
            return list(range(len(self._points.axes)))
        axes = {self._places[key][0] for key in keys if key in self._places}
        if constant and len(self._points.bases) > 1:
            axes |= {number for number, axis in enumerate(self._points.axes) if axis.groups}
        return sorted(axes)

    def _constant(self, key: str) -> dict[int, Any] | None:
        """Base → value of the key, where no swept key can change it; else None."""
        held = {}
        for number, base in enumerate(self._points.bases):
            root = OmegaConf.create(base.config)
            node = node_at(root, key)
            swept = [place for place in self._places if place == key or key.startswith(f"{place}.")]
            if swept or node is None or _interpolates(node):
                return None
            held[number] = OmegaConf.to_container(node) if OmegaConf.is_config(node) else node._value()
        return held

    def _values_at(self, indices: Sequence[int]) -> dict[str, Any]:
        return {key: column.value(indices[number]) for key, (number, column) in self._places.items()}

    def _base(self, indices: Sequence[int]) -> int:
        return self._points.bases.index(self._points.base(self._values_at(indices)))

    def _computed(self, key: str, indices: Sequence[int]) -> Any:
        root = self._points.root(0, Path("."), self._values_at(indices))
        try:
            with hydra_answers(root, self._points.described):
                if (value := OmegaConf.select(root, key, default=_NOTHING)) is _NOTHING:
                    raise ConfigError(f"there is no key {key!r}", KEY)
        except OmegaConfBaseException as error:
            raise ConfigError(str(translate(error)), KEY) from error
        return OmegaConf.to_container(value, resolve=True) if isinstance(value, (DictConfig, ListConfig)) else value


_NOTHING = object()


def _interpolates(node: Any) -> bool:
    """Whether the node's value depends on other keys."""
    if isinstance(node, (DictConfig, ListConfig)):
        if node._is_none() or node._is_missing() or node._is_interpolation():
            return True
        return any(_interpolates(node._get_node(key)) for key in _keys(node))
    return bool(node._is_interpolation() or node._is_missing())


def _keys(node: DictConfig | ListConfig) -> Any:
    return range(len(node)) if isinstance(node, ListConfig) else node.keys()
