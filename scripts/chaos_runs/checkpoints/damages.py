"""Random damages to checkpoints of two ranks: each is found, named, and the newest whole checkpoint is restored.

Which checkpoints are whole is judged by comparing bytes with an undamaged copy, not by the code under test.
"""

from __future__ import annotations

import collections
import contextlib
import json
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chaos_runs.checkpoints.ranks import Plan, Training, next_attempt, standing

_STEPS = 4
_CONFIGS: list[dict[str, Any]] = [
    {"shared": {"every": 1, "keep": _STEPS}, "incremental": False},
    {"shared": {"every": 1, "keep": _STEPS}, "incremental": True},
    {"shared": {"every": 1, "keep": _STEPS, "compression": "zstd"}, "incremental": False},
]


@dataclass
class Tally:
    """What happened."""

    kinds: collections.Counter[str] = field(default_factory=collections.Counter)
    found: int = 0
    fell_back: int = 0
    losses: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kinds.items()))
        return (
            f"{self.kinds.total()} damages ({kinds}), {self.found} found, {self.fell_back} fell back, "
            f"{len(self.losses)} lost"
        )


class Tier:
    """A tier's folder, and its undamaged copy."""

    def __init__(self, root: Path, pristine: Path) -> None:
        self.root, self.pristine = root, pristine
        self.commits = standing(pristine)

    def name(self, commit: dict[str, Any]) -> str:
        return f"step-{commit['step']:08d}/{commit['unique']}"

    def names(self, commit: dict[str, Any]) -> tuple[str, str]:
        """What a message may call it: the checkpoint, or its record where that is what broke."""
        return self.name(commit), f"commits/{commit['file']}"

    def record(self, commit: dict[str, Any]) -> Path:
        return self.root / "commits" / str(commit["file"])

    def manifest(self, commit: dict[str, Any]) -> Path:
        return self.root / str(commit["manifest"])

    def segments(self, commit: dict[str, Any]) -> list[tuple[str, int, int]]:
        """File, offset and length of every byte that counts."""
        values = json.loads((self.pristine / str(commit["manifest"])).read_bytes())
        pieces = [piece for item in values["items"] for piece in item[3]]
        return [(values["files"][piece[0]][0], piece[1], piece[2]) for piece in pieces]

    def payloads(self, commit: dict[str, Any]) -> list[Path]:
        return [self.root / name for name in sorted({name for name, _, _ in self.segments(commit)})]

    def whole(self, commit: dict[str, Any]) -> bool:
        small = [Path("commits") / str(commit["file"]), Path(str(commit["manifest"]))]
        if any(content(self.root / name) != content(self.pristine / name) for name in small):
            return False
        pairs = {
            name: (content(self.root / name), content(self.pristine / name)) for name, _, _ in self.segments(commit)
        }
        return all(
            now is not None and was is not None and now[at : at + size] == was[at : at + size]
            for (now, was), at, size in ((pairs[name], at, size) for name, at, size in self.segments(commit))
        )


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def flip_payload(tier: Tier, commit: dict[str, Any], rng: random.Random) -> None:
    name, at, size = rng.choice(tier.segments(commit))
    flip(tier.root / name, at + rng.randrange(size), rng)


def flip(path: Path, at: int, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def truncate_payload(tier: Tier, commit: dict[str, Any], rng: random.Random) -> None:
    name, at, size = rng.choice(tier.segments(commit))
    truncate(tier.root / name, rng.randrange(at + size))


def truncate(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def lose_payload(tier: Tier, commit: dict[str, Any], rng: random.Random) -> None:
    rng.choice(tier.payloads(commit)).unlink()


def zero_page(tier: Tier, commit: dict[str, Any], rng: random.Random) -> None:
    """What a lost write leaves in a file."""
    name, at, size = rng.choice(tier.segments(commit))
    with (tier.root / name).open("r+b") as file:
        file.seek(at)
        file.write(bytes(min(size, 4096)))


def swap_payloads(tier: Tier, commit: dict[str, Any], rng: random.Random) -> None:
    other = rng.choice([each for each in tier.commits if each is not commit])
    rank = rng.randrange(2)
    swap(*(tier.root / tier.name(each) / f"rank-{rank:05d}.bin" for each in (commit, other)))


def swap_ranks(tier: Tier, commit: dict[str, Any], _: random.Random) -> None:
    swap(*(tier.root / tier.name(commit) / f"rank-{rank:05d}.bin" for rank in range(2)))


def swap(one: Path, other: Path) -> None:
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def swap_manifests(tier: Tier, commit: dict[str, Any], rng: random.Random) -> None:
    other = rng.choice([each for each in tier.commits if each is not commit])
    swap(tier.manifest(commit), tier.manifest(other))


def stale_manifest(tier: Tier, commit: dict[str, Any], _: random.Random) -> None:
    other = tier.commits[0] if commit is not tier.commits[0] else tier.commits[1]
    tier.manifest(commit).write_bytes(tier.manifest(other).read_bytes())


def edit_manifest(tier: Tier, commit: dict[str, Any], _: random.Random) -> None:
    """Points a tensor at its bytes of another step, as a helpful hand might."""
    text = tier.manifest(commit).read_text()
    other = tier.commits[0] if commit is not tier.commits[0] else tier.commits[1]
    tier.manifest(commit).write_text(text.replace(tier.name(commit), tier.name(other)))


def flip_manifest(tier: Tier, commit: dict[str, Any], rng: random.Random) -> None:
    flip(tier.manifest(commit), rng.randrange(tier.manifest(commit).stat().st_size), rng)


def truncate_manifest(tier: Tier, commit: dict[str, Any], rng: random.Random) -> None:
    truncate(tier.manifest(commit), rng.randrange(tier.manifest(commit).stat().st_size))


def lose_manifest(tier: Tier, commit: dict[str, Any], _: random.Random) -> None:
    tier.manifest(commit).unlink()


def flip_record(tier: Tier, commit: dict[str, Any], rng: random.Random) -> None:
    flip(tier.record(commit), rng.randrange(tier.record(commit).stat().st_size), rng)


def truncate_record(tier: Tier, commit: dict[str, Any], rng: random.Random) -> None:
    truncate(tier.record(commit), rng.randrange(tier.record(commit).stat().st_size))


def edit_record(tier: Tier, commit: dict[str, Any], _: random.Random) -> None:
    """Passes an older checkpoint off as a newer one."""
    values = json.loads(tier.record(commit).read_bytes())
    tier.record(commit).write_text(json.dumps({**values, "step": values["step"] + 100}))


DAMAGES: dict[str, Callable[[Tier, dict[str, Any], random.Random], None]] = {
    "payload bit": flip_payload,
    "payload cut": truncate_payload,
    "payload missing": lose_payload,
    "payload page": zero_page,
    "payloads of two steps swapped": swap_payloads,
    "payloads of two ranks swapped": swap_ranks,
    "manifests swapped": swap_manifests,
    "manifest stale": stale_manifest,
    "manifest edited": edit_manifest,
    "manifest bit": flip_manifest,
    "manifest cut": truncate_manifest,
    "manifest missing": lose_manifest,
    "record bit": flip_record,
    "record cut": truncate_record,
    "record edited": edit_record,
}


def run(folder: Path, seed: int, damages: int) -> Tally:
    rng, tally = random.Random(f"damages {seed}"), Tally()
    plans = [saved(folder / "damages" / str(number) / "run", config) for number, config in enumerate(_CONFIGS)]
    for number in range(damages):
        plan = plans[number % len(plans)]
        once(plan, rng, tally)
        if number % 20 == 19 or number == damages - 1:
            print(f"chaos: {number + 1} of {damages}: {tally}", file=sys.stderr, flush=True)
    return tally


def saved(folder: Path, config: dict[str, Any]) -> Plan:
    """A run that has its checkpoints."""
    plan = Plan(folder, 0, config, kib=64, steps=_STEPS, force=True)
    training = Training(plan)
    if ended(training) != [0, 0]:
        raise RuntimeError(f"the training to be damaged failed: {training.errors()[-2000:]}")
    return plan


def once(plan: Plan, rng: random.Random, tally: Tally) -> None:
    """Damages the newest checkpoints of a copy (or an older one), restores, compares, and removes the copy."""
    kind = rng.choice(list(DAMAGES))
    copy = plan.folder.with_name("damaged")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(plan.folder, copy)
    tier = Tier(copy / "checkpoints", plan.folder / "checkpoints")
    for _ in range(rng.choice((1, 1, 2))):
        with contextlib.suppress(FileNotFoundError):  # the first damage took what the second wanted
            DAMAGES[kind](tier, rng.choices(tier.commits, (1, 1, 2, 6))[0], rng)
    tally.kinds[kind] += 1
    for problem in judge(tier, restored(plan, copy), copy, tally):
        text = f"{kind}, {plan.config}: {problem}"
        tally.losses.append(text)
        print(f"chaos: LOST: {text}", file=sys.stderr, flush=True)


def restored(plan: Plan, folder: Path) -> Training:
    training = Training(replace(next_attempt(plan), folder=folder, steps=0))
    ended(training)
    return training


def ended(training: Training) -> list[int | None]:
    """The exit codes; nothing of it is left, not even where this is interrupted."""
    try:
        return training.wait()
    finally:
        training.end()


def judge(tier: Tier, training: Training, folder: Path, tally: Tally) -> list[str]:
    """What went wrong, if anything."""
    whole = [commit for commit in tier.commits if tier.whole(commit)]
    broken = [commit for commit in tier.commits if commit not in whole]
    if not whole:
        return refusal(training, tally)
    said = training.said("restored")
    if not said:
        return [f"nothing was restored: {training.first_error()}"]
    newest = whole[-1]["step"]
    problems = [f"a mix: {said[0]['wrong']}"] if said[0]["wrong"] else []
    if said[0]["step"] != newest:
        problems.append(f"restored step {said[0]['step']}, and the newest whole one is {newest}")
    journal = [json.loads(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]
    told = {event["checkpoint"] for event in journal if event["event"] == "checkpoint-damaged"}
    skipped = [tier.names(commit) for commit in broken if commit["step"] > newest]
    missed = [names[0] for names in skipped if not {*names} & told]
    problems += [f"{name} is damaged, and no event says so" for name in missed]
    silent = [names[0] for names in skipped if not any(name in training.errors() for name in names)]
    problems += [f"{name} is damaged, and standard error does not say so" for name in silent]
    tally.found += not missed
    tally.fell_back += not problems
    return problems


def refusal(training: Training, tally: Tally) -> list[str]:
    """Where nothing is whole nobody starts over without knowing."""
    refused = "nothing that was saved can be restored" in training.errors() and not training.said("restored")
    tally.found += refused
    tally.fell_back += refused
    return [] if refused else ["nothing is whole, and the training was not told"]
