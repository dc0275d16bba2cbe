"""A storage kind that slurmopt does not ship: folders under the name `dummy:///PATH`, with an option of its own.

`python dummy_storage.py FOLDER` adds it as a developer would (an entry in the table, a config dataclass and its field),
saves with it in the run folder FOLDER and restores in a second attempt, and prints what each part of slurmopt sees.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from slurmopt.config import checkpoint, tiers
from slurmopt.storage.folder import FolderStore
from slurmopt.storage.kinds import KINDS, Kind

SCHEME = "dummy://"


class DummyStore(FolderStore):
    @property
    def place(self) -> str:
        return f"{SCHEME}{self.root}"


def open_store(root: str, *, deadline: float = 600.0, color: str | None = None) -> DummyStore:
    assert deadline > 0
    assert color in ("blue", None)
    return DummyStore(Path(root.removeprefix(SCHEME)))


def register() -> None:
    """What a developer writes: an entry, and a dataclass that is a field of Checkpoint."""
    KINDS["dummy"] = Kind(name="dummy", module="checkpoint.dummy_storage", scheme=SCHEME)

    @dataclass(kw_only=True)
    class Dummy(tiers.Tier):
        name: ClassVar[str] = "dummy"
        deferred: ClassVar[tuple[str, ...]] = ("url",)
        url: str | None = None
        color: str = "red"

    @dataclass(kw_only=True)
    class WithDummy(checkpoint.Checkpoint):
        dummy: Dummy = field(default_factory=Dummy)

    checkpoint.Checkpoint = WithDummy  # type: ignore[misc]  # as if the field stood in its source


def main(folder: Path) -> None:
    # What reads the table at import is imported once it has its entry.
    import torch
    from checkpoint.ranks import alone

    from slurmopt.checkpoint import Checkpointer
    from slurmopt.cli import main as command
    from slurmopt.commands.complete.main import candidates
    from slurmopt.run_folder import attempts, events
    from slurmopt.run_folder.layout import RunFolder
    from slurmopt.runs.status import checkpoints

    place = f"{SCHEME}{folder.parents[2] / 'bucket'}"
    config = {"shared": {"path": None}, "dummy": {"url": place, "color": "blue", "every": 1}}
    (folder / "config.yaml").write_text(json.dumps({"checkpoint": config}))
    events.append(folder / "events.jsonl", "created", name=folder.parent.name, id=folder.name)
    events.append(folder / "events.jsonl", "attempt", attempt=0, job="1", nodes=["here"])
    state = {"weights": torch.arange(1000.0)}
    with Checkpointer(config, alone(folder)) as saving:
        saving.save(7, state)
        durable = saving.wait()
    restored = {"weights": torch.zeros(1000)}
    with Checkpointer(config, alone(folder, 1)) as restoring:
        step = restoring.restore(restored)
    statuses = [
        command(["checkpoint", "list", str(folder)]),
        command(["checkpoint", "verify", str(folder), "--tier", "dummy"]),
        command(["checkpoint", "list", f"{place}/{folder.parent.name}/{folder.name}"]),
    ]
    report = {
        "durable": durable,
        "restored": step if torch.equal(restored["weights"], state["weights"]) else None,
        "statuses": statuses,
        "files": len([*(folder.parents[2] / "bucket").rglob("manifest.json")]),
        "attempt": attempts.attempts(RunFolder(folder))[0].durable,
        "status": {tier: one.step for tier, one in checkpoints.read(RunFolder(folder)).durable.items()},
        "completion": candidates("slurmopt checkpoint verify --tier d"),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    register()
    main(Path(sys.argv[1]))
