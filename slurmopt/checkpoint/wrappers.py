"""Removes the names of wrappers from a model's state dict keys, so that wrappers can change between attempts.

torch.compile adds `_orig_mod.` to the names, FSDP1 `_fsdp_wrapped_module.`, activation checkpointing
`_checkpoint_wrapped_module.`, and DDP and DataParallel `module.`, which may also be the name of a submodule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from slurmopt.errors import CheckpointError

_ZERO = "ZeroRedundancyOptimizer"
_WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})


def unwrapped(value: Any) -> Any:
    """A model without its DDP wrapper, so that a single process, or FSDP, can load it."""
    return value.module if isinstance(value, torch.nn.parallel.DistributedDataParallel) else value


def state_of(value: Any) -> Any:
    """The state of an entry: its `state_dict()` with plain keys, or the value itself."""
    owner = unwrapped(value)
    if not hasattr(owner, "state_dict"):
        return owner
    state = owner.state_dict()
    if isinstance(owner, torch.nn.Module):
        plain = plain_keys(owner, state)
        if any(key != name for key, name in plain.items()):
            return {plain[key]: each for key, each in state.items()}
    return state


def refuse_parts(name: str, value: Any) -> None:
    """Raises CheckpointError for an optimizer whose state_dict is a part that looks complete on each rank, unless the
    entry is `per_rank`."""
    if getattr(value, "per_rank", False):
        return
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return
    kind = ""
    if any(each.__name__ == _ZERO for each in type(value).__mro__):  # checked by name: its module takes long to import
        kind = _ZERO
    elif isinstance(value, torch.optim.Optimizer) and any(map(_is_of_fsdp1, _parameters(value))):
        kind = "FSDP1 (FullyShardedDataParallel)"
    if kind:
        raise CheckpointError(
            f"state[{name!r}]: with {kind} each rank has a part of the optimizer's state that does not say which; "
            "use FSDP2 (torch.distributed.fsdp.fully_shard), or an optimizer that each rank has whole"
        )


def _parameters(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _is_of_fsdp1(parameter: Any) -> bool:
    """FSDP1 marks the parameters that it has flattened, also with `use_orig_params`."""
    return bool(getattr(parameter, "_fsdp_flattened", False))


def plain_keys(model: torch.nn.Module, keys: Iterable[str]) -> dict[str, str]:
    """Maps each key of the model's state_dict to its name without wrappers. Two keys that would get the same name keep
    theirs."""
    keys = list(keys)
    if not any("module" in key or "_orig_mod" in key for key in keys):  # the fast path: no wrapper
        return dict(zip(keys, keys, strict=True))
    parallel = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
    wrapped = {_plain(f"{path}.module") for path, each in model.named_modules() if isinstance(each, parallel)}
    return _distinct({key: _without(_plain(key), wrapped) for key in keys})


def renamed_keys(saved: Iterable[str], plain: Iterable[str]) -> dict[str, str]:
    """Maps each saved key to the matching one of `plain`: an older version saved the wrappers' names too. A key without
    a match keeps its name, and so do two keys with the same match."""
    saved = list(saved)
    free = set(plain) - set(saved)
    return _distinct({key: _matching(key, free) for key in saved})


def with_wrappers(model: torch.nn.Module, state: dict[str, Any]) -> dict[str, Any]:
    """Maps a state's plain names to the keys that the model's load_state_dict expects."""
    key_of = {plain: key for key, plain in plain_keys(model, model.state_dict()).items()}
    return {key_of.get(name, name): value for name, value in state.items()}


def _matching(key: str, free: set[str]) -> str:
    name = _plain(key)
    parts = name.split(".")
    # A part `module` was added by DDP where the current model has the name without it.
    candidates = [name, *(".".join(parts[:at] + parts[at + 1 :]) for at, part in enumerate(parts) if part == "module")]
    return next((candidate for candidate in candidates if candidate in free), key)


def _distinct(names: dict[str, str]) -> dict[str, str]:
    """Keys that would get the same name keep their own, so that none is lost."""
    count = Counter(names.values())
    distinct = {key: name if count[name] == 1 else key for key, name in names.items()}
    return distinct if len(set(distinct.values())) == len(distinct) else {key: key for key in names}


def _plain(key: str) -> str:
    return ".".join(part for part in key.split(".") if part and part not in _WRAPPERS)


def _without(key: str, wrapped: set[str]) -> str:
    parts = key.split(".")
    return ".".join(part for at, part in enumerate(parts) if ".".join(parts[: at + 1]) not in wrapped)
