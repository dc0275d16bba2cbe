"""The group `checkpoint`: the places of checkpoints, the intervals of saves, and the number that is kept.

The job imports this module too, so it does not import Hydra or OmegaConf.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

from slurmopt.config.check import did_you_mean, one_of, readable, text_or_null, true_or_false, whole_number
from slurmopt.config.tiers import S3, Scratch, Shared, Tier, known
from slurmopt.errors import ConfigError, one_line
from slurmopt.storage.kinds import KINDS, shared_kinds
from slurmopt.units import seconds

HISTORY, UNKNOWN_MTBF = "history", "24h"


@dataclass(kw_only=True)
class Checkpoint:
    """The places of checkpoints, the intervals of saves, and the number of checkpoints that are kept. Each tier is
    optional; without a tier, nothing is saved."""

    scratch: Scratch = field(default_factory=Scratch)
    """The disk of each node."""

    shared: Shared = field(default_factory=Shared)
    """The file system that all nodes share."""

    s3: S3 = field(default_factory=S3)
    """A bucket of S3."""

    metric: str | None = None
    """The name of a metric given to `save(…, metrics={…})`, for `best`."""

    mode: str = "min"
    """Whether the best metric is the smallest (`min`) or the largest (`max`)."""

    durable: str = "auto"
    """The tier that `wait()` waits for: `scratch`, `shared` or `s3`. `auto`: shared, else s3, else scratch."""

    buffers: int = 2
    """Snapshots in host memory: 2 lets the training go on while one is being written; 1 takes half the memory."""

    incremental: bool = True
    """Whether tensors that did not change since a kept checkpoint are referenced instead of written again."""

    failures: int = 5
    """The number of consecutive saves that failed on all tiers after which the run is stopped."""

    deadline: str = "10min"
    """How long one save to one tier may take."""

    mtbf: str = UNKNOWN_MTBF
    """The mean time between failures of the whole run that give no notice, for `every: auto`. `history`: that of your
    earlier runs, read at launch; 24h where these tell of fewer than three."""

    def __post_init__(self) -> None:
        one_of(str(self.mode), ("min", "max"), "checkpoint.mode")
        self._check_durable()
        whole_number(self.buffers, 1, "checkpoint.buffers", most=2)
        true_or_false(self.incremental, "checkpoint.incremental")
        whole_number(self.failures, 1, "checkpoint.failures")
        readable(str(self.deadline), seconds, "checkpoint.deadline")
        if self.mtbf != HISTORY:
            readable(str(self.mtbf), seconds, "checkpoint.mtbf")
        text_or_null(self.metric, "checkpoint.metric")
        for tier in self._all_tiers():
            if tier.best and self.metric is None:
                raise ConfigError("needs checkpoint.metric", f"checkpoint.{tier.name}.best")

    @property
    def mtbf_seconds(self) -> float:
        """Of a config that no launch has looked up in the history, that of an unknown rate."""
        return float(seconds(UNKNOWN_MTBF if self.mtbf == HISTORY else self.mtbf))

    @property
    def tiers(self) -> dict[str, Tier]:
        """The enabled tiers by name, the fastest first."""
        return {tier.name: tier for tier in self._all_tiers() if tier.place is not None}

    @property
    def durable_tier(self) -> str | None:
        """The name of the tier that `wait()` waits for; None if all tiers are off."""
        if self.durable != "auto":
            return self.durable
        return next((name for name in (*shared_kinds(), *KINDS) if name in self.tiers), None)

    def _all_tiers(self) -> list[Tier]:
        return [getattr(self, name) for name in KINDS]

    def _check_durable(self) -> None:
        one_of(str(self.durable), ("auto", *KINDS), "checkpoint.durable")
        if self.durable != "auto" and self.durable not in self.tiers:
            on = ", ".join(["auto", *self.tiers])
            raise ConfigError(f"the tier {self.durable!r} is off; valid: {on}", "checkpoint.durable")


TIERS: dict[str, Any] = {item.name: item.default_factory for item in fields(Checkpoint) if item.name in KINDS}
"""The dataclass of each tier."""


def check_packages(checkpoint: Checkpoint) -> None:
    """Raises ConfigError if an enabled tier needs a package that is not installed. Does not import the packages."""
    for name, tier in checkpoint.tiers.items():
        if tier.compression == "zstd" and not _has("zstandard"):
            raise ConfigError(
                "zstd needs the package zstandard: pip install zstandard", f"checkpoint.{name}.compression"
            )
        kind = KINDS[name]
        for package in kind.packages:
            if not _has(package):
                raise ConfigError(f"needs {package}: pip install {package}", f"checkpoint.{name}.{kind.place_key}")


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def checkpoint_of(value: object) -> Checkpoint:
    """Returns the group for a value passed by training code: its `config.checkpoint`, a plain mapping, or a Checkpoint.

    Raises ConfigError with the key if a key is unknown, a value is invalid, or an environment variable is not set in
    the job.
    """
    checkpoint = value if isinstance(value, Checkpoint) else _build(Checkpoint, _plain(value), "checkpoint")
    _check_filled_in(asdict(checkpoint), "checkpoint")
    return checkpoint


def _plain(value: object) -> object:
    """Converts a DictConfig to plain containers, resolved; returns other values unchanged. Does not import OmegaConf:
    a DictConfig exists only if OmegaConf has been imported."""
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is None or not isinstance(value, omegaconf.DictConfig):
        return value
    try:
        return omegaconf.OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
    except omegaconf.errors.OmegaConfBaseException as error:
        reason = str(getattr(error, "msg", None) or error).partition("\n")[0]
        raise ConfigError(one_line(reason), getattr(error, "full_key", None) or "checkpoint") from error


def _build(kind: Any, value: object, path: str) -> Any:
    if not isinstance(value, Mapping):
        raise ConfigError(f"is not a group but a {type(value).__name__}; valid: the keys of the group", path)
    defaults = {item.name: item.default_factory for item in fields(kind)}
    for name in map(str, value):
        if name not in defaults:
            raise ConfigError(
                f"unknown key{did_you_mean(name, defaults)}; valid in {path!r}: {', '.join(defaults)}", f"{path}.{name}"
            )
    nested = {name: inner for name, inner in defaults.items() if is_dataclass(inner)}
    return kind(
        **{
            name: _build(nested[name], value[name], f"{path}.{name}") if name in nested else value[name]
            for name in value
        }
    )


def _check_filled_in(value: object, path: str) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            _check_filled_in(item, f"{path}.{name}")
    elif isinstance(value, str) and not known(value):
        raise ConfigError(f"{value!r} is not filled in; valid: `config.checkpoint` as OmegaConf loads it", path)
