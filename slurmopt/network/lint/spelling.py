"""Names that the table does not have: misspelt ones, and those that no page documents."""

from __future__ import annotations

import difflib
from functools import cache

from slurmopt.network.lint.setting import WARN, Finding, Setting
from slurmopt.network.lint.table import Table, table

_OWN = {
    "TORCH_NCCL_": "torch",
    "TORCH_FR_": "torch",
    "OFI_NCCL_": "aws-ofi-nccl",
    "NCCL_": "NCCL",
    "FI_EFA_": "libfabric's EFA provider",
    "RDMAV_": "rdma-core",
}
"""Prefixes of which the table has every name."""
_PREFIXES = (*_OWN, "TORCH_GLOO_", "TORCH_DISTRIBUTED_", "TORCH_DIST_", "GLOO_", "FI_")
_SIMILAR = 0.85
_SIMILAR_WHOLE = 0.9
_MOST_NAMES = 1000
"""Unknown names whose nearest is looked for, which takes milliseconds. Nobody misspells so many."""


def unknown(setting: Setting, known: Table) -> Finding | None:
    """The finding for a name that the table lacks; None where other software may read it."""
    if known.is_foreign(setting.name):
        return None
    nearest = _nearest(setting.name) if _nearest.cache_info().currsize < _MOST_NAMES else None
    if nearest is not None:
        what = "is no variable of any library here, and has no effect"
        return Finding(setting, WARN, what, f"did you mean {_today(nearest, known)}?", known.variables[nearest].source)
    owner = next((owner for prefix, owner in _OWN.items() if setting.name.startswith(prefix)), None)
    if owner is None:
        return None
    return Finding(setting, WARN, f"is not documented by {owner}; most likely it has no effect", "delete it")


@cache
def _nearest(name: str) -> str | None:
    known = table()
    prefix = _prefix(name)
    rest = name.removeprefix(prefix)
    same_rest = [one for one in known.variables if one.removeprefix(_prefix(one)) == rest]
    if same_rest:
        return same_rest[0]
    siblings = {one.removeprefix(prefix): one for one in known.variables if _prefix(one) == prefix}
    close = difflib.get_close_matches(rest, siblings, n=1, cutoff=_SIMILAR)
    if close:
        return siblings[close[0]]
    whole = difflib.get_close_matches(name, known.variables, n=1, cutoff=_SIMILAR_WHOLE)
    return whole[0] if whole else None


def _prefix(name: str) -> str:
    return next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")


def _today(name: str, known: Table) -> str:
    """A name, or the one that has replaced it."""
    replaced_by = known.variables[name].replaced_by
    return name if replaced_by is None else f"{name}, today {replaced_by}"
