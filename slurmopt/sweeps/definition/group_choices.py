"""Makes the base configs of points.json: one composed config per combination of config-group choices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.base import Container

from slurmopt.grid.axes import Axis
from slurmopt.grid.base_configs import TYPED, Base, picks_key

_TYPE_NAMES = {kind: name for name, kind in TYPED.items()}


def combinations(axes: list[Axis]) -> list[dict[str, int]]:
    """Every combination of choices that a point has: group key → index of its value. That of the first point is
    first."""
    return [
        dict(itertools.chain(*choices))
        for choices in itertools.product(*(_distinct(axis) for axis in axes if axis.groups))
    ]


def _distinct(axis: Axis) -> list[list[tuple[str, int]]]:
    first_indices: dict[str, int] = {}
    for index in axis:
        first_indices.setdefault(picks_key([column.value(index) for column in axis.groups]), index)
    return [[(column.key, index) for column in axis.groups] for index in first_indices.values()]


def base_of(config: DictConfig, picks: list[Any], hydra: list[dict[str, Any]]) -> Base:
    """`config` as a Base. Its Hydra node is added to `hydra`, unless that has an equal one."""
    container = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
    assert isinstance(container, dict)
    node: dict[str, Any] = container.pop("hydra")
    choices = node["runtime"].pop("choices")
    node["overrides"]["task"] = []
    node["job"]["override_dirname"] = None
    if node not in hydra:
        hydra.append(node)
    typed = dict(_typed_interpolations(config))
    named = {str(key): value for key, value in container.items()}
    return Base(picks=picks, config=named, choices=choices, hydra=hydra.index(node), typed=typed)


def _typed_interpolations(config: DictConfig) -> Iterator[tuple[str, str]]:
    for key in config:
        if key != "hydra":
            yield from _typed_at(config._get_node(key), str(key))


def _typed_at(node: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, DictConfig) and not (node._is_none() or node._is_missing() or node._is_interpolation()):
        for key in node:
            if isinstance(key, str):
                yield from _typed_at(node._get_node(key), f"{path}.{key}")
    elif not isinstance(node, (Container, ListConfig)) and node._is_interpolation() and type(node) in _TYPE_NAMES:
        yield path, _TYPE_NAMES[type(node)]
