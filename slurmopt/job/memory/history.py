"""Makes torch note which lines allocate GPU memory."""

from __future__ import annotations

from typing import Any

_ENTRIES = 100_000
"""Of the history of all allocations, each of which takes some kilobytes."""
_is_on_for_good = False


class History:
    """From its making to `close`, if nobody has switched it on before."""

    def __init__(self, memory: Any) -> None:
        """`memory`: torch.cuda.memory."""
        self._memory = memory
        self._is_own = not (_is_on_for_good or _has_lines(memory._snapshot()))
        if self._is_own:
            # No history of what is freed: the lines of what is held are enough, and take no memory that grows.
            memory._record_memory_history(enabled="state", context="state", stacks="python")

    def close(self) -> None:
        """Switches it off again."""
        if self._is_own:
            self._memory._record_memory_history(enabled=None)


def keep(torch: Any) -> None:
    """Switches it on for as long as the process lives, as soon as it uses a GPU."""
    global _is_on_for_good
    _is_on_for_good = True
    torch.cuda._lazy_call(
        lambda: torch.cuda.memory._record_memory_history(
            enabled="all", context="alloc", stacks="python", max_entries=_ENTRIES
        )
    )


def _has_lines(snapshot: dict[str, Any]) -> bool:
    return any(snapshot.get("device_traces", ())) or any(
        block.get("frames") for segment in snapshot["segments"] for block in segment["blocks"]
    )
