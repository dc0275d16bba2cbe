"""What the findings need of a composed config, from its plain mapping."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from slurmopt.ledger.findings.evidence import ConfigFacts
from slurmopt.run_folder.json_values import as_int, text
from slurmopt.units import mebibytes, seconds

_TIERS = (("scratch", "path", None), ("shared", "path", "auto"), ("s3", "url", None))
"""Tier → the key of its place, and the default of it."""


def config_facts(config: Mapping[str, Any], sweep: bool = False) -> ConfigFacts:
    """The facts of a config as it was stored, of a point of a `sweep` or not. A value of a wrong type counts as not
    set."""
    resources, checkpoint = _group(config, "resources"), _group(config, "checkpoint")
    variables = _group(_group(config, "environment"), "variables")
    return ConfigFacts(
        nodes=as_int(resources.get("nodes")),
        gpus_per_node=as_int(resources.get("gpus_per_node")),
        tasks_per_node=as_int(resources.get("tasks_per_node")),
        cpus_per_task=as_int(resources.get("cpus_per_task")),
        memory=_bytes(resources.get("memory")),
        time=_seconds(resources.get("time")),
        exclude=text(resources.get("exclude")),
        exclusive=resources.get("exclusive") is True,
        checkpoint={
            name: text(_group(checkpoint, name).get("every")) or "auto"
            for name, key, default in _TIERS
            if _group(checkpoint, name).get(key, default) is not None
        },
        buffers=as_int(checkpoint.get("buffers")) or 2,
        side_by_side=as_int(_group(config, "sweep").get("side_by_side")) or 1,
        sweep=sweep,
        compile_cache="TORCHINDUCTOR_CACHE_DIR" in variables,
        staged=_staged(_group(_group(config, "storage"), "stage")),
    )


def _group(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = config.get(name)
    return value if isinstance(value, Mapping) else {}


def _staged(entries: Mapping[str, Any]) -> str | None:
    """Only of the long form: `keep` cannot be added to a plain source."""
    kept = (name for name, entry in entries.items() if isinstance(entry, Mapping) and not entry.get("keep"))
    return next(kept, None)


def _bytes(value: Any) -> float | None:
    if (word := text(value)) is not None:
        with contextlib.suppress(ValueError):
            return float(mebibytes(word) << 20) or None
    return None


def _seconds(value: Any) -> float | None:
    if (word := text(value)) is not None:
        with contextlib.suppress(ValueError):
            return float(seconds(word))
    return None
