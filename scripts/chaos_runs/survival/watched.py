"""A run as its disturber sees it: the journal, and the training's own record."""

from __future__ import annotations

import collections
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.errors import ClusterError

from chaos_runs.survival.site import Missed, Site
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder

NODES = 2
"""Of a run."""
_OVER = {
    "", "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
    "TIMEOUT",
}  # fmt: skip


@dataclass
class Attempt:
    """What the ranks of one attempt recorded. Times are seconds since the epoch."""

    ranks: int
    """How many there are."""
    restored: dict[int, dict[str, Any]] = field(default_factory=dict)
    steps: dict[int, dict[int, dict[str, Any]]] = field(default_factory=lambda: collections.defaultdict(dict))
    """What each rank recorded of each step."""

    @property
    def began_at(self) -> int | None:
        """The step that it went on from."""
        return max((each["step"] for each in self.restored.values()), default=None)

    def reached(self, before: float = float("inf")) -> int:
        """The last step that all ranks completed."""
        whole = [
            step
            for step, ranks in self.steps.items()
            if len(ranks) == self.ranks and max(each["time"] for each in ranks.values()) < before
        ]
        return max(whole, default=self.began_at or 0)

    def first_step_time(self) -> float | None:
        """When all ranks had completed their first step."""
        first = min((step for step, ranks in self.steps.items() if len(ranks) == self.ranks), default=None)
        return None if first is None else max(float(each["time"]) for each in self.steps[first].values())


class Lines:
    """The whole lines that a growing file has got since the last look."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def new(self) -> list[bytes]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.splitlines()


class Watched:
    """One launched run."""

    def __init__(self, site: Site, answer: dict[str, Any], ranks: int) -> None:
        self.site, self.folder = site, RunFolder(Path(answer["run"]))
        self.ranks, self.may_vanish = ranks, False
        """Whether Slurm may give it up: then `slurmopt tend` has to bring it back."""
        self.tended = 0
        self._lines = Lines(self.folder.events)
        self._journal: list[dict[str, Any]] = []
        self._record_lines: dict[Path, Lines] = {}
        self._attempts: dict[int, Attempt] = collections.defaultdict(lambda: Attempt(ranks))
        self._looks_without = 0

    def journal(self, word: str, attempt: int | None = None) -> list[dict[str, Any]]:
        self._journal += events.parse(self._lines.new())
        return [e for e in self._journal if e["event"] == word and attempt in (None, e.get("attempt"))]

    @property
    def attempt(self) -> int:
        """The newest that has begun; -1 for none."""
        return max((int(each["attempt"]) for each in self.journal("attempt")), default=-1)

    @property
    def job(self) -> str:
        told = sorted([*self.journal("submitted"), *self.journal("attempt")], key=lambda event: float(event["time"]))
        return str(told[-1]["job"])

    @property
    def nodes(self) -> list[str]:
        """The newest attempt's, its batch host first."""
        names = self.site.slurm("scontrol", "show", "hostnames", self.journal("attempt")[-1]["nodes"])
        return names.split()

    def durable(self, attempt: int | None = None, tier: str | None = None, before: float = float("inf")) -> int:
        """The newest step that was reported durable."""
        told = [e for e in self.journal("checkpoint", attempt) if tier in (None, e["tier"]) and e["time"] < before]
        return max((int(each["step"]) for each in told), default=0)

    def record(self) -> dict[int, Attempt]:
        """Of all attempts so far."""
        for path in (self.site.project / "record" / self.folder.id).glob("attempt-*/rank-*.jsonl"):
            lines = self._record_lines.setdefault(path, Lines(path))
            attempt, rank = self._attempts[int(path.parent.name[8:])], int(path.stem[5:])
            for line in map(json.loads, lines.new()):
                if "said" in line:
                    attempt.restored[rank] = line
                else:
                    attempt.steps[line["step"]][rank] = line
        return dict(sorted(self._attempts.items()))

    def pid(self, rank: int) -> int:
        """Of the newest attempt."""
        return int(self.record()[self.attempt].restored[rank]["pid"])

    def leftovers(self, before: int | None = None) -> list[str]:
        """Processes of this run, or of its attempts before that one."""
        return [
            f"{one.name} ({one.pid}, of attempt {one.environment.get('SLURMOPT_ATTEMPT')})"
            for one in self.site.processes()
            if one.environment.get("SLURMOPT_RUN_FOLDER") == str(self.folder.path)
            and (before is None or int(one.environment.get("SLURMOPT_ATTEMPT") or before) < before)
        ]

    def wait(self, ready: Any, seconds: float, what: str) -> None:
        """As `Site.wait`; at once Missed where Slurm has no job of this run any more."""
        self.site.wait(ready, seconds, what, self._look)

    def _look(self) -> None:
        try:
            state = self.site.slurm("squeue", "-h", "--states=all", "-j", self.job, "-o", "%T").strip()
        except ClusterError:  # slurmctld is away for a while, by our own hand
            return
        self._looks_without = self._looks_without + 1 if state in _OVER else 0
        if self._looks_without <= 2 or self.site.is_read_only:
            return
        if not self.may_vanish:
            ends = self.journal("end")
            raise Missed(f"the run stopped; its job is {state}, and the last end in its journal {ends and ends[-1]}")
        self.tended += 1
        self.may_vanish = False
        self.site.slurmopt("tend", str(self.folder.path))
        self._looks_without = 0
