"""What the points of a sweep start from: one composed config per combination of config-group choices."""

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
    """One composed config, nothing resolved."""

    picks: list[Any]
    """The group axes' values, in the order of the axes."""
    config: dict[str, Any]
    choices: dict[str, Any]
    """`hydra.runtime.choices`."""
    hydra: int = 0
    """Which of the stored Hydra nodes belongs to it."""
    typed: dict[str, str] = field(default_factory=dict)
    """Interpolations in typed fields: dotted key → a name of `TYPED`, for what they resolve to takes that type."""

    def as_json(self) -> dict[str, Any]:
        return {
            "picks": encode(self.picks),
            "config": encode(self.config),
            "choices": encode(self.choices),
            "hydra": self.hydra,
            "typed": self.typed,
        }

    @classmethod
    def from_json(cls, held: dict[str, Any]) -> Base:
        return cls(
            picks=decode(held["picks"]),
            config=decode(held["config"]),
            choices=decode(held["choices"]),
            hydra=int(held["hydra"]),
            typed=dict(held["typed"]),
        )

    @cached_property
    def asks_hydra(self) -> bool:
        """Whether anything in it may read Hydra's node, which is half the work of a point's config."""
        return asks_hydra(self.config)

    def root(self, hydra: dict[str, Any]) -> DictConfig:
        """A new config to set values on, with Hydra's node in it, closed to new keys as Hydra's is."""
        # In a tenth of the time in which it is made: of a million points each needs one.
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


def picked(picks: list[Any]) -> str:
    """The group choices as a key to look a base up by."""
    return json.dumps(encode(picks), sort_keys=True)


def asks_hydra(value: Any) -> bool:
    """Whether some text in it has an interpolation, and the word hydra."""
    if isinstance(value, str):
        return "${" in value and "hydra" in value
    if isinstance(value, dict):
        return any(map(asks_hydra, value.values()))
    return isinstance(value, list) and any(map(asks_hydra, value))


def override_dirname(words: list[str], config: dict[str, Any]) -> str:
    """`hydra.job.override_dirname`: the words, sorted and joined as `hydra.job.config.override_dirname` says."""
    excluded = config.get("exclude_keys") or []
    kept = sorted(one for one in words if _key(one) not in excluded)
    return re.sub("=", lambda _: str(config.get("kv_sep", "=")), str(config.get("item_sep", ",")).join(kept))


def _key(words: str) -> str:
    return words.partition("=")[0].lstrip("+~").partition("@")[0]
