"""Finding the newest whole checkpoint over all tiers, with all ranks of one mind about it."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from slurmopt.checkpoint import ledger
from slurmopt.checkpoint.agreement import Agreement
from slurmopt.checkpoint.ledger import Commit
from slurmopt.checkpoint.manifest import decode
from slurmopt.checkpoint.reading import Damaged
from slurmopt.checkpoint.restore import Restorer
from slurmopt.checkpoint.tiers import Tier
from slurmopt.errors import CheckpointError, StorageError
from slurmopt.folder import events
from slurmopt.runtime.run import CurrentRun


class Candidate(NamedTuple):
    """A complete checkpoint on one tier."""

    tier: str
    commit: Commit


class Recovery:
    """One restore."""

    def __init__(self, tiers: list[Tier], run: CurrentRun, ranks: Agreement) -> None:
        self._tiers, self._run, self._ranks = tiers, run, ranks
        self._stores = {tier.name: tier.store() for tier in tiers}
        self.found: Candidate | None = None

    def restore(self, state: dict[str, Any]) -> int:
        """The step that was restored, 0 for none."""
        candidates, problems = self._candidates()
        broken = []
        for candidate in candidates:
            if (reason := self._load(candidate, state)) is None:
                self.found = candidate
                self._tell("restored", candidate)
                return candidate.commit.step
            broken.append(f"{candidate.commit.name} on {candidate.tier}: {reason}")
        if broken or problems:
            raise CheckpointError("nothing that was saved can be restored: " + "; ".join((broken or problems)[:3]))
        return 0

    def _candidates(self) -> tuple[list[Candidate], list[str]]:
        """Newest first, and of the same step the fastest tier first."""
        found: dict[tuple[str, str], Candidate] = {}
        problems: list[str] = []
        for listed, failed in self._ranks.gather(self._listed()):
            found.update({(each.tier, each.commit.name): each for each in listed})
            problems += failed
        order = {tier.name: -index for index, tier in enumerate(self._tiers)}
        newest = sorted(
            found.values(), key=lambda c: (c.commit.step, c.commit.attempt, c.commit.time, order[c.tier]), reverse=True
        )
        return newest, problems

    def _listed(self) -> tuple[list[Candidate], list[str]]:
        found, problems = [], []
        for tier in self._tiers:
            if self._ranks.rank == 0 or (tier.node_local and self._run.rank.local_rank == 0):
                try:
                    commits = ledger.read(self._stores[tier.name]).commits
                except StorageError as error:
                    problems.append(f"{tier.name} cannot be read: {error}")
                    continue
                found += [Candidate(tier.name, commit) for commit in commits]
        return found, problems

    def _load(self, candidate: Candidate, state: dict[str, Any]) -> str | None:
        """None once every rank has loaded it; else why one could not."""
        outcomes = self._ranks.gather(self._attempt(candidate, state))
        for kind, text in outcomes:
            if kind == "unfit":
                raise CheckpointError(text)
        reasons = [text for kind, text in outcomes if kind != "loaded"]
        if reasons and any(kind == "damaged" for kind, _ in outcomes):
            self._tell("checkpoint-damaged", candidate, reason=reasons[0])
        return reasons[0] if reasons else None

    def _attempt(self, candidate: Candidate, state: dict[str, Any]) -> tuple[str, str]:
        store = self._stores[candidate.tier]
        try:
            manifest = decode(store.get(candidate.commit.manifest), candidate.commit)
            Restorer(store, manifest, self._ranks.rank).load(state)
        except Damaged as error:
            return "damaged", str(error)
        except FileNotFoundError as error:
            return "damaged", f"{error.filename or error} is missing"
        except StorageError as error:
            return "unreadable", str(error)
        except CheckpointError as error:
            return "unfit", str(error)
        return "loaded", ""

    def _tell(self, event: str, candidate: Candidate, **more: Any) -> None:
        if self._ranks.rank != 0:
            return
        commit = candidate.commit
        fields = {"step": commit.step, "tier": candidate.tier, "checkpoint": commit.name, **more}
        events.append(self._run.folder.events, event, attempt=self._run.attempt, **fields)
        words = {"restored": "restored from", "checkpoint-damaged": "set aside"}[event]
        reason = f": {more['reason']}" if more else ""
        print(f"slurmopt: {words} {commit.name} on {candidate.tier}{reason}", file=sys.stderr, flush=True)
