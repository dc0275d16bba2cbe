"""Reads from a run's journal which checkpoints are durable on which tier, which saves failed since, and which
checkpoints were damaged.

A long run has tens of thousands of such events. Only the relevant ones are parsed, from the end backwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slurmopt.run_folder import events
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.status.state import age
from slurmopt.storage.kinds import KINDS

_DURABLE, _FAILED, _DAMAGED, _PRUNED, _RESTORED = (
    f'"event": "{word}"'.encode()
    for word in ("checkpoint", "checkpoint-failed", "checkpoint-damaged", "checkpoint-pruned", "restored")
)
_ANY, _NOWHERE = b'"checkpoint', b'"tier": null'
"""As `events.append` writes them. Quotes within a value are escaped, so nothing else matches these."""
_REMEMBERED = 10_000
"""Lines of each kind that are kept: older ones do not matter for the status."""


@dataclass(frozen=True)
class Durable:
    """A checkpoint that is complete on a tier."""

    step: int
    time: float | None
    """When it became durable: seconds since the epoch."""
    checkpoint: str | None


@dataclass(frozen=True)
class Failure:
    """Failed saves to a tier since its last successful one; step, time and reason are those of the latest."""

    tier: str | None
    """None: the save failed before it reached any tier."""
    count: int
    step: int | None
    time: float | None
    reason: str | None


@dataclass(frozen=True)
class Damaged:
    """A checkpoint that was found broken and set aside."""

    tier: str | None
    checkpoint: str | None
    time: float | None
    reason: str | None


@dataclass(frozen=True)
class Restored:
    """The checkpoint that the latest attempt which had one restored."""

    step: int
    tier: str | None
    checkpoint: str | None
    time: float | None


@dataclass
class Checkpoints:
    """What the journal says. A field of a wrong type counts as missing; a line without a step is ignored."""

    durable: dict[str, Durable] = field(default_factory=dict)
    """Tier → its newest durable checkpoint."""
    failures: list[Failure] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)
    """The latest last."""
    restored: Restored | None = None


def read(folder: RunFolder) -> Checkpoints:
    """Reads a run's journal; without any checkpoints where it cannot be read."""
    try:
        lines = _Lines(folder.events)
    except OSError:
        return Checkpoints()
    damaged = [_damaged(event) for event in events.parse(lines.damaged)]
    checkpoints = Checkpoints(damaged=damaged, restored=_restored(lines.restored))
    for tier, tier_lines in lines.of_tiers.items():
        if (newest := _newest(tier_lines, {item.checkpoint for item in damaged if item.tier == tier})) is not None:
            checkpoints.durable[tier] = newest
        checkpoints.failures += _failures(tier, tier_lines)
    checkpoints.failures += _failures(None, lines.of_no_tier)
    return checkpoints


class _Lines:
    """The latest lines about checkpoints: at most a few MiB, however long the journal is."""

    def __init__(self, path: Path) -> None:
        self.of_tiers: dict[str, deque[bytes]] = {tier: deque(maxlen=_REMEMBERED) for tier in KINDS}
        self.of_no_tier, self.damaged, self.restored = (deque[bytes](maxlen=_REMEMBERED) for _ in range(3))
        for block in events.blocks(path):
            if _ANY in block or _RESTORED in block:
                self._take(block)

    def _take(self, block: bytes) -> None:
        lines = block.splitlines()
        for tier, tier_lines in self.of_tiers.items():
            tier_lines.extend(_with(lines, block, f'"tier": "{tier}"'.encode()))
        if _NOWHERE in block:
            self.of_no_tier.extend([line for line in lines if _NOWHERE in line or _DURABLE in line])
        elif _DURABLE in block:  # a success resets the failures before it
            self.of_no_tier.clear()
        self.damaged.extend(_with(lines, block, _DAMAGED))
        self.restored.extend(_with(lines, block, _RESTORED))


def _with(lines: list[bytes], block: bytes, pattern: bytes) -> list[bytes]:
    """The block's lines that contain `pattern`. Most blocks lack most patterns, and one search tells that."""
    return [line for line in lines if pattern in line] if pattern in block else []


def _backwards(lines: Sequence[bytes], *patterns: bytes) -> Iterator[dict[str, Any]]:
    return events.parse(line for line in reversed(lines) if any(pattern in line for pattern in patterns))


def _newest(lines: Sequence[bytes], excluded: set[str | None]) -> Durable | None:
    """The newest durable checkpoint in one tier's `lines` that is neither in `excluded` nor pruned."""
    for event in _backwards(lines, _DURABLE, _PRUNED):
        if event["event"] == "checkpoint-pruned":
            names = event.get("checkpoints")
            excluded.update(map(text, names) if isinstance(names, list) else ())
            continue
        step, name = as_int(event.get("step")), text(event.get("checkpoint"))
        if step is not None and (name is None or name not in excluded):
            return Durable(step, number(event.get("time")), name)
    return None


def _failures(tier: str | None, lines: Sequence[bytes]) -> list[Failure]:
    """The failures since the last successful save in `lines`, as one Failure; empty where there are none."""
    last = max((index for index, line in enumerate(lines) if _DURABLE in line), default=-1)
    failed = list(_backwards(list(lines)[last + 1 :], _FAILED))
    if not failed:
        return []
    newest = failed[0]
    step, time, reason = as_int(newest.get("step")), number(newest.get("time")), text(newest.get("reason"))
    return [Failure(tier, len(failed), step, time, reason)]


def _damaged(event: dict[str, Any]) -> Damaged:
    name, tier, reason = (text(event.get(key)) for key in ("checkpoint", "tier", "reason"))
    return Damaged(tier, name, number(event.get("time")), reason)


def _restored(lines: Sequence[bytes]) -> Restored | None:
    for event in _backwards(lines, _RESTORED):
        if (step := as_int(event.get("step"))) is not None:
            return Restored(step, text(event.get("tier")), text(event.get("checkpoint")), number(event.get("time")))
    return None


def for_people(checkpoints: Checkpoints, now: float) -> list[str]:
    """A line of the durable checkpoints, and one for each failure, damage and restore."""
    durable = [
        f"step {checkpoint.step:,} on {tier}{_ago(checkpoint.time, now)}"
        for tier, checkpoint in checkpoints.durable.items()
    ]
    lines = ["; ".join(durable), *(_failure_line(failure, now) for failure in checkpoints.failures)]
    if checkpoints.damaged:
        lines.append(_damaged_line(checkpoints.damaged, now))
    if restored := checkpoints.restored:
        lines.append(f"went on from step {restored.step:,}{_on(restored.tier)}{_ago(restored.time, now)}")
    return [line for line in lines if line]


def _failure_line(failure: Failure, now: float) -> str:
    subject, latest = (
        ("the last save", "") if failure.count == 1 else (f"the last {failure.count} saves", ", the latest")
    )
    to = f" to {failure.tier}" if failure.tier else ""
    step = f" at step {failure.step:,}" if failure.step is not None else ""
    return f"{subject}{to} failed{latest}{step}{_ago(failure.time, now)}: {failure.reason or 'no reason given'}"


def _damaged_line(damaged: list[Damaged], now: float) -> str:
    last, earlier = damaged[-1], len(damaged) - 1
    before = f", and {earlier} before" if earlier else ""
    why = last.reason or "no reason given"
    return f"{last.checkpoint or 'one'}{_on(last.tier)} was damaged and set aside{_ago(last.time, now)}{before}: {why}"


def _on(tier: str | None) -> str:
    return f" on {tier}" if tier else ""


def _ago(then: float | None, now: float) -> str:
    return "" if then is None else f" {age(then, now)}"


def as_dict(checkpoints: Checkpoints | None) -> dict[str, Any]:
    """The keys of `slurmopt status --json` about checkpoints; all null for None."""
    if checkpoints is None:
        return dict.fromkeys(("checkpoints", "checkpoint_failures", "checkpoints_damaged", "restored"))
    return {
        "checkpoints": {tier: asdict(item) for tier, item in checkpoints.durable.items()},
        "checkpoint_failures": [asdict(item) for item in checkpoints.failures],
        "checkpoints_damaged": [asdict(item) for item in checkpoints.damaged],
        "restored": asdict(checkpoints.restored) if checkpoints.restored else None,
    }
