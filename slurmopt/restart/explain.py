"""Says for people why a run that has ended is not restarted."""

from __future__ import annotations

from slurmopt.restart import causes

_WHY = {
    causes.USER_ERROR: "an error in your code",
    causes.OUT_OF_MEMORY: "the next attempt would have no more memory",
    causes.GPU_OUT_OF_MEMORY: "the next attempt would have no more memory of the GPU",
}


def not_restarted(cause: str | None, reason: str | None) -> str:
    """`Not restarted: an error in your code (restart.budgets.user_error is 0)`; "" where nothing is known."""
    why = _WHY.get(cause or "")
    if why is None or not (reason or "").startswith("restart.budgets."):
        return f"Not restarted: {reason}" if reason else ""
    return f"Not restarted: {why} ({reason})"
