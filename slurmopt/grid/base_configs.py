"""The base configs of a sweep's points: one composed config per combination of config-group choices."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from omegaconf import BooleanNode, DictConfig, FloatNode, IntegerNode, OmegaConf, StringNode, ValueNode

from slurmopt.grid.codec import decode, encode

TYPED: dict[str, type[ValueNode]] = {"str": StringNode, "int": IntegerNode, "float": FloatNode, "bool": BooleanNode}
"""The types that a field of the schema may give to a value."""


@dataclass(frozen=True, kw_only=True)
class Base:
    """One composed config, unresolved."""

    picks: list[Any]
    """The group axes' values, in the order of the axes."""
    config: dict[str, Any]
    choices: dict[str, Any]
    """`hydra.runtime.choices`."""
    hydra: int = 0
    """The index of its Hydra node among the stored ones."""
    typed: dict[str, str] = field(default_factory=dict)
    """Interpolations in typed fields: dotted key → the name in `TYPED` of the type that the resolved value takes."""

    def as_json(self) -> dict[str, Any]:
        return {
            "picks": encode(self.picks),
            "config": encode(self.config),
            "choices": encode(self.choices),
            "hydra": self.hydra,
            "typed": self.typed,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Base:
        return cls(
            picks=decode(value["picks"]),
            config=decode(value["config"]),
            choices=decode(value["choices"]),
            hydra=int(value["hydra"]),
            typed=dict(value["typed"]),
        )

    @cached_property
    def asks_hydra(self) -> bool:
        """Whether the config may read Hydra's node, which costs half the time of computing a point's config."""
        return may_read_hydra(self.config)

    def root(self, hydra: dict[str, Any]) -> DictConfig:
        """A new config to set values on, with Hydra's node, closed to new keys as Hydra's configs are."""
        # Unpickling takes a tenth of the time of making it; each of a million points needs one.
        return self._made(hydra) if hydra else pickle.loads(self._without_hydra)  # noqa: S301 - this process's own

    @cached_property
    def _without_hydra(self) -> bytes:
        return pickle.dumps(self._made({}))

    def _made(self, hydra: dict[str, Any]) -> DictConfig:
        root = OmegaConf.create({**self.config, "hydra": hydra})
        for key, kind in self.typed.items():
            _give_type(root, key, TYPED[kind])
        OmegaConf.set_struct(root, True)
        root.hydra._set_flag("struct", False)
        return root


def _give_type(root: DictConfig, key: str, kind: type[ValueNode]) -> None:
    parent_key, _, name = key.rpartition(".")
    parent: Any = OmegaConf.select(root, parent_key) if parent_key else root
    node: Any = kind
    parent[name] = node(parent._get_node(name)._value())


def picks_key(picks: list[Any]) -> str:
    """The group choices as a lookup key of bases."""
    return json.dumps(encode(picks), sort_keys=True)


def may_read_hydra(value: Any) -> bool:
    """Whether a text in `value` has both an interpolation and the word hydra."""
    if isinstance(value, str):
        return "${" in value and "hydra" in value
    if isinstance(value, dict):
        return any(map(may_read_hydra, value.values()))
    return isinstance(value, list) and any(map(may_read_hydra, value))


def override_dirname(overrides: list[str], config: dict[str, Any]) -> str:
    """`hydra.job.override_dirname`: the overrides, sorted and joined as `hydra.job.config.override_dirname` says."""
    excluded = config.get("exclude_keys") or []
    included = sorted(override for override in overrides if _key(override) not in excluded)
    return re.sub("=", lambda _: str(config.get("kv_sep", "=")), str(config.get("item_sep", ",")).join(included))


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~").partition("@")[0]
