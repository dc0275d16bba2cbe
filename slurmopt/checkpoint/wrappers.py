"""Names of a model's entries without those of what it is wrapped in, so that wrappers can change between attempts.

torch.compile puts `_orig_mod.` before the names, FSDP1 `_fsdp_wrapped_module.`, activation checkpointing
`_checkpoint_wrapped_module.`, and DDP and DataParallel `module.`, which may also be the name of a model's own part.
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
    """A model without its DDP wrapper: one process, or FSDP, can load it then."""
    return value.module if isinstance(value, torch.nn.parallel.DistributedDataParallel) else value


def state_of(value: Any) -> Any:
    """What an entry of the user's state dict holds: its `state_dict()`, or itself."""
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
    """CheckpointError for an optimizer of which each rank has a part that looks like the whole, unless the entry asks
    for a value of its own on each rank."""
    if getattr(value, "per_rank", False):
        return
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return
    kind = ""
    if any(each.__name__ == _ZERO for each in type(value).__mro__):  # its module takes long to import
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
    """FSDP1 itself marks those that it has flattened, with `use_orig_params` too."""
    return bool(getattr(parameter, "_fsdp_flattened", False))


def plain_keys(model: torch.nn.Module, keys: Iterable[str]) -> dict[str, str]:
    """The name without wrappers of each of `keys`, which are those of the model's state_dict. A name that two keys
    would have is given to neither."""
    keys = list(keys)
    if not any("module" in key or "_orig_mod" in key for key in keys):  # no wrapper's: most models, at each save
        return dict(zip(keys, keys, strict=True))
    parallel = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
    wrapped = {_plain(f"{path}.module") for path, each in model.named_modules() if isinstance(each, parallel)}
    return _distinct({key: _without(_plain(key), wrapped) for key in keys})


def renamed_keys(saved: Iterable[str], plain: Iterable[str]) -> dict[str, str]:
    """For each saved key the one of `plain` that it means: an older version saved the wrappers' names too. A key that
    means none keeps its name, and so do two that would mean the same."""
    saved = list(saved)
    free = set(plain) - set(saved)
    return _distinct({key: _matching(key, free) for key in saved})


def with_wrappers(model: torch.nn.Module, state: dict[str, Any]) -> dict[str, Any]:
    """A state by plain names, by those that the model's own load_state_dict takes."""
    key_of = {plain: key for key, plain in plain_keys(model, model.state_dict()).items()}
    return {key_of.get(name, name): value for name, value in state.items()}


def _matching(key: str, free: set[str]) -> str:
    name = _plain(key)
    parts = name.split(".")
    # A `module` in it was DDP's, where the model of today has the name without it.
    candidates = [name, *(".".join(parts[:at] + parts[at + 1 :]) for at, part in enumerate(parts) if part == "module")]
    return next((candidate for candidate in candidates if candidate in free), key)


def _distinct(names: dict[str, str]) -> dict[str, str]:
    """Keys that would have the same name keep their own, and nothing is lost."""
    count = Counter(names.values())
    found = {key: name if count[name] == 1 else key for key, name in names.items()}
    return found if len(set(found.values())) == len(found) else {key: key for key in names}


def _plain(key: str) -> str:
    return ".".join(part for part in key.split(".") if part and part not in _WRAPPERS)


def _without(key: str, wrapped: set[str]) -> str:
    parts = key.split(".")
    return ".".join(part for at, part in enumerate(parts) if ".".join(parts[: at + 1]) not in wrapped)
