"""Follows the training by hooks of torch: forward pass and its modules, backward pass, optimizer.

The hooks are called in the training's thread, and are set and removed there: torch goes over them meanwhile.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from slurmopt.job.memory.peaks import Peak, Peaks

FORWARD, BACKWARD, OPTIMIZER, REST = "forward", "loss and backward", "optimizer", "between steps"
PHASES = (FORWARD, BACKWARD, OPTIMIZER, REST)
_MODULE = "module "
_NO_GRAPH_TASK = -1


class Spans:
    """From its making to `close`. Once torch.compile has compiled something, forward and backward pass are one."""

    def __init__(self, peaks: Peaks) -> None:
        import torch
        from torch.nn.modules import module
        from torch.optim import optimizer

        self._graph_task = torch._C._current_graph_task_id  # here: a hook that raises would end the training
        self._peaks, self._thread = peaks, threading.get_ident()
        self._names: dict[int, str] = {}
        self._depth = 0
        peaks.enter(REST)
        self._phase = REST
        self._hooks: list[Any] = [
            optimizer.register_optimizer_step_pre_hook(self._before_optimizer),
            optimizer.register_optimizer_step_post_hook(self._after_optimizer),
        ]
        if not has_compiled():
            self._hooks += [
                module.register_module_forward_pre_hook(self._before_module),
                module.register_module_forward_hook(self._after_module, always_call=True),
            ]

    def close(self) -> None:
        """Removes the hooks and ends what is open."""
        for hook in self._hooks:
            hook.remove()
        self._peaks.leave_all()

    def phases(self) -> list[Peak]:
        """In the order of a step."""
        return [self._peaks.found[name] for name in PHASES if name in self._peaks.found]

    def modules(self) -> list[Peak]:
        """Those that keep most come first."""
        found = [peak for name, peak in self._peaks.found.items() if name.startswith(_MODULE)]
        return sorted(found, key=lambda peak: (-peak.kept, -peak.over, peak.name))

    def _enter(self, phase: str) -> None:
        if phase != self._phase:
            self._peaks.leave_all()
            self._peaks.enter(phase)
            self._phase, self._depth = phase, 0

    def _is_elsewhere(self) -> bool:
        """Whether a module is computed anew in a backward pass, or in a thread of the training's own."""
        return threading.get_ident() != self._thread or self._graph_task() != _NO_GRAPH_TASK

    def _before_optimizer(self, *_: Any) -> None:
        if threading.get_ident() == self._thread:
            self._enter(OPTIMIZER)

    def _after_optimizer(self, *_: Any) -> None:
        if threading.get_ident() == self._thread:
            self._enter(REST)

    def _before_module(self, module: Any, _: Any) -> None:
        if self._is_elsewhere():
            return
        if self._depth == 0:
            self._enter(FORWARD)
            self._name(module)
        self._depth += 1
        self._peaks.enter(f"{_MODULE}{self._names.get(id(module)) or type(module).__name__}")

    def _after_module(self, module: Any, *_: Any) -> None:
        if self._is_elsewhere() or self._phase != FORWARD or self._depth == 0:
            return
        self._peaks.leave()
        self._depth -= 1
        if self._depth == 0:
            self._enter(BACKWARD)

    def _name(self, root: Any) -> None:
        for name, module in root.named_modules():
            kind = type(module).__name__
            self._names.setdefault(id(module), f"{name} ({kind})" if name else kind)


def module_name(peak: Peak) -> str:
    """The module of a span."""
    return peak.name.removeprefix(_MODULE)


def has_compiled() -> bool:
    """Whether torch.compile has compiled something: hooks on all modules would make it compile again."""
    counted = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counted) and bool(counted["stats"].get("unique_graphs", 0))
