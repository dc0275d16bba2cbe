"""What a run's journal tells of its checkpoints: what is durable where, what failed since, what was found damaged.

A long run has tens of thousands of such lines: only those that count are parsed, from the end backwards.
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
"""As `events.append` writes them. A quote within a value has a backslash before it: nothing else looks like these."""
_REMEMBERED = 10_000
"""Lines of each kind: what is older says nothing of how it stands."""


@dataclass(frozen=True)
class Durable:
    """A checkpoint that is complete on a tier."""

    step: int
    time: float | None
    """When it became so: seconds since the epoch."""
    checkpoint: str | None


@dataclass(frozen=True)
class Failure:
    """Saves to a tier that failed since the last one there that did not; step, time and reason are the latest's."""

    tier: str | None
    """None: before it came to any tier."""
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
    """Where the latest attempt that had a checkpoint went on from."""

    step: int
    tier: str | None
    checkpoint: str | None
    time: float | None


@dataclass
class Checkpoints:
    """What the journal tells. A field of a wrong type counts as missing, a line without a step as no line."""

    durable: dict[str, Durable] = field(default_factory=dict)
    """The newest durable one of each tier that has one."""
    failures: list[Failure] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)
    """The latest last."""
    restored: Restored | None = None


def read(folder: RunFolder) -> Checkpoints:
    """Reads a run's journal; one that cannot be read tells nothing."""
    try:
        lines = _Lines(folder.events)
    except OSError:
        return Checkpoints()
    damaged = [_damaged(event) for event in events.parse(lines.damaged)]
    found = Checkpoints(damaged=damaged, restored=_restored(lines.restored))
    for tier, of_tier in lines.of_tiers.items():
        if (newest := _newest(of_tier, {one.checkpoint for one in damaged if one.tier == tier})) is not None:
            found.durable[tier] = newest
        found.failures += _failures(tier, of_tier)
    found.failures += _failures(None, lines.of_no_tier)
    return found


class _Lines:
    """The latest lines that tell of checkpoints: of a journal of any length a few MiB."""

    def __init__(self, path: Path) -> None:
        self.of_tiers: dict[str, deque[bytes]] = {tier: deque(maxlen=_REMEMBERED) for tier in KINDS}
        self.of_no_tier, self.damaged, self.restored = (deque[bytes](maxlen=_REMEMBERED) for _ in range(3))
        for block in events.blocks(path):
            if _ANY in block or _RESTORED in block:
                self._take(block)

    def _take(self, block: bytes) -> None:
        lines = block.splitlines()
        for tier, kept in self.of_tiers.items():
            kept.extend(_with(lines, block, f'"tier": "{tier}"'.encode()))
        if _NOWHERE in block:
            self.of_no_tier.extend([line for line in lines if _NOWHERE in line or _DURABLE in line])
        elif _DURABLE in block:  # which ends what failed before
            self.of_no_tier.clear()
        self.damaged.extend(_with(lines, block, _DAMAGED))
        self.restored.extend(_with(lines, block, _RESTORED))


def _with(lines: list[bytes], block: bytes, word: bytes) -> list[bytes]:
    """Those of the block's lines that have `word`. Most blocks lack most words, which is quickly seen."""
    return [line for line in lines if word in line] if word in block else []


def _backwards(lines: Sequence[bytes], *words: bytes) -> Iterator[dict[str, Any]]:
    return events.parse(line for line in reversed(lines) if any(word in line for word in words))


def _newest(lines: Sequence[bytes], gone: set[str | None]) -> Durable | None:
    """The newest durable one of one tier's `lines` that is neither in `gone` nor pruned."""
    for event in _backwards(lines, _DURABLE, _PRUNED):
        if event["event"] == "checkpoint-pruned":
            names = event.get("checkpoints")
            gone.update(map(text, names) if isinstance(names, list) else ())
            continue
        step, name = as_int(event.get("step")), text(event.get("checkpoint"))
        if step is not None and (name is None or name not in gone):
            return Durable(step, number(event.get("time")), name)
    return None


def _failures(tier: str | None, lines: Sequence[bytes]) -> list[Failure]:
    """What failed since the newest of `lines` that tells of success; one Failure, or none."""
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


def for_people(found: Checkpoints, now: float) -> list[str]:
    """A line for what is durable, and one for each thing that its owner should know."""
    durable = [f"step {one.step:,} on {tier}{_ago(one.time, now)}" for tier, one in found.durable.items()]
    lines = ["; ".join(durable), *(_failure_line(failure, now) for failure in found.failures)]
    if found.damaged:
        lines.append(_damaged_line(found.damaged, now))
    if found.restored:
        lines.append(
            f"went on from step {found.restored.step:,}{_on(found.restored.tier)}{_ago(found.restored.time, now)}"
        )
    return [line for line in lines if line]


def _failure_line(failure: Failure, now: float) -> str:
    what, latest = ("the last save", "") if failure.count == 1 else (f"the last {failure.count} saves", ", the latest")
    to = f" to {failure.tier}" if failure.tier else ""
    step = f" at step {failure.step:,}" if failure.step is not None else ""
    return f"{what}{to} failed{latest}{step}{_ago(failure.time, now)}: {failure.reason or 'no reason given'}"


def _damaged_line(damaged: list[Damaged], now: float) -> str:
    last, others = damaged[-1], len(damaged) - 1
    more = f", and {others} before" if others else ""
    why = last.reason or "no reason given"
    return f"{last.checkpoint or 'one'}{_on(last.tier)} was damaged and set aside{_ago(last.time, now)}{more}: {why}"


def _on(tier: str | None) -> str:
    return f" on {tier}" if tier else ""


def _ago(then: float | None, now: float) -> str:
    return "" if then is None else f" {age(then, now)}"


def as_dict(found: Checkpoints | None) -> dict[str, Any]:
    """The keys of `slurmopt status --json` that tell of checkpoints; all null where nobody looked."""
    if found is None:
        return dict.fromkeys(("checkpoints", "checkpoint_failures", "checkpoints_damaged", "restored"))
    return {
        "checkpoints": {tier: asdict(one) for tier, one in found.durable.items()},
        "checkpoint_failures": [asdict(one) for one in found.failures],
        "checkpoints_damaged": [asdict(one) for one in found.damaged],
        "restored": asdict(found.restored) if found.restored else None,
    }
