"""Recovery: finds the newest undamaged checkpoint on all tiers, and restores it on all ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from slurmopt import log
from slurmopt.checkpoint.collectives import Collectives
from slurmopt.checkpoint.format import ledger
from slurmopt.checkpoint.format.index import files_taken_by, load_items
from slurmopt.checkpoint.format.ledger import Commit, Records
from slurmopt.checkpoint.format.manifest import Damaged, Manifest
from slurmopt.checkpoint.format.manifest_reader import decode
from slurmopt.checkpoint.journal_events import note
from slurmopt.checkpoint.restore.needed_files import Needs, needs
from slurmopt.checkpoint.restore.node_cache import NodeCache
from slurmopt.checkpoint.restore.node_window import PeerFailed, Window
from slurmopt.checkpoint.restore.optimizer_state import create_optimizer_states
from slurmopt.checkpoint.restore.restore import Restorer, not_restored, resized
from slurmopt.checkpoint.tiers import SMALL_SECONDS, Tier
from slurmopt.errors import CheckpointError, ConfigError, StorageError, one_line
from slurmopt.job.worker.current_run import CurrentRun, moved
from slurmopt.run_folder import events
from slurmopt.storage.store import Store
from slurmopt.units import steps_or_seconds


class Candidate(NamedTuple):
    """A complete checkpoint on one tier; `manifest` is set once it was read."""

    tier: str
    commit: Commit
    manifest: Manifest | None = None


class Recovery:
    """One restore, in which all ranks take part. `before`: of the steps before this one; None: of all."""

    def __init__(self, tiers: list[Tier], run: CurrentRun, ranks: Collectives, before: int | None = None) -> None:
        self._tiers, self._run, self._ranks, self._before = tiers, run, ranks, before
        self._stores = {tier.name: tier.store() for tier in tiers}
        self._node_cache = NodeCache(ranks, run.rank, moved)
        self._by_name = {tier.name: tier for tier in tiers}
        self.restored: Candidate | None = None
        self.damaged: list[Candidate] = []
        self._newest: dict[str, int] = {}
        self._manifest_read: Manifest | None = None
        self._encoded = b""
        self._nodes_with: Counter[tuple[str, str]] = Counter()

    def restore(self, state: dict[str, Any]) -> int:
        """Restores, and returns the step, 0 for none."""
        try:
            return self._restore(state)
        finally:
            self._node_cache.close()

    def lacking(self) -> list[str]:
        """The slower tiers that lack the restored checkpoint although one was due there."""
        if self.restored is None:
            return []
        names = [tier.name for tier in self._tiers]
        slower = self._tiers[names.index(self.restored.tier) + 1 :]
        step = self.restored.commit.step
        return [tier.name for tier in slower if _was_due(tier, self._newest.get(tier.name, 0), step)]

    def known_everywhere(self) -> bool:
        """Whether every node's ledger has the restored checkpoint; only then may the next save reference it."""
        assert self.restored is not None
        holders = self._nodes_with[self.restored.tier, self.restored.commit.name]
        return not self._by_name[self.restored.tier].node_local or holders == self._node_cache.nodes

    def _restore(self, state: dict[str, Any]) -> int:
        candidates, problems = self._candidates()
        for problem in problems:
            self._log(problem)
        for tier, commit, _ in reversed(candidates):
            self._newest[tier] = commit.step
        broken = []
        for candidate in candidates:
            if (reason := self._load(candidate, state)) is None:
                self.restored = candidate._replace(manifest=self._manifest_read)
                self._report("restored", candidate)
                return candidate.commit.step
            broken.append(f"{candidate.commit.name} on {candidate.tier}: {reason}")
        if broken or problems:
            raise CheckpointError("nothing that was saved can be restored: " + "; ".join((broken or problems)[:3]))
        return 0

    def _candidates(self) -> tuple[list[Candidate], list[str]]:
        """All candidates, newest first, for equal checkpoints the fastest tier first; and problems."""
        by_key: dict[tuple[str, str], Candidate] = {}
        problems: list[str] = []
        for listed, failed in self._ranks.gather(self._list_own()):
            by_key.update({(each.tier, each.commit.name): each for each in listed})
            self._nodes_with.update((each.tier, each.commit.name) for each in listed)
            problems += failed
        order = {tier.name: -index for index, tier in enumerate(self._tiers)}
        newest = sorted(
            by_key.values(), key=lambda c: (c.commit.step, c.commit.attempt, c.commit.time, order[c.tier]), reverse=True
        )
        return newest, problems

    def _list_own(self) -> tuple[list[Candidate], list[str]]:
        candidates, problems = [], []
        for tier in self._tiers:
            if self._ranks.rank == 0 or (tier.node_local and self._run.rank.local_rank == 0):
                try:
                    records = ledger.read(tier.store(SMALL_SECONDS))
                    problems += self._vanished(tier, records)
                except (StorageError, ConfigError, OSError) as error:
                    problem = f"{tier.name} cannot be read: {error}"
                    if self._ever_saved(tier.name):
                        problems.append(problem)
                    else:  # a new run starts although a tier is unreachable
                        self._log(f"{problem}; this run has saved nothing there so far")
                    continue
                problems += [self._lost(tier, key) for key in records.unreadable]
                candidates += [Candidate(tier.name, commit) for commit in records.commits if self._is_wanted(commit)]
        return candidates, problems

    def _is_wanted(self, commit: Commit) -> bool:
        return self._before is None or commit.step < self._before

    def _vanished(self, tier: Tier, records: Records) -> list[str]:
        """A problem where all saved checkpoints are missing, as on a file system that is not mounted."""
        if records.commits or records.damaged or records.unreadable or tier.node_local:
            return []
        if not self._saved(tier.name) - records.pruned:
            return []
        why = "is it mounted?" if tier.kind.is_folder else "was it deleted?"
        return [f"{tier.name}: nothing is left at {tier.root}, where this run has saved; {why}"]

    def _ever_saved(self, tier: str) -> bool:
        """Whether the journal has a checkpoint on `tier`; True where it cannot be read."""
        try:
            journal = events.parse(events.lines(self._run.folder.events))
            return any(event["event"] == "checkpoint" and event.get("tier") == tier for event in journal)
        except OSError:
            return True

    def _saved(self, tier: str) -> set[str]:
        """The checkpoints that the journal says were saved to `tier` and not pruned."""
        saved: set[str] = set()
        for event in events.parse(events.lines(self._run.folder.events)):
            if event.get("tier") != tier:
                continue
            if event["event"] == "checkpoint":
                saved.add(str(event.get("checkpoint")))
            elif event["event"] == "checkpoint-pruned" and isinstance(event.get("checkpoints"), list):
                saved.difference_update(map(str, event["checkpoints"]))
        return saved

    def _lost(self, tier: Tier, key: str) -> str:
        reason = "this record is damaged, so the checkpoint that it may have stood for is left out"
        fields = {"tier": tier.name, "checkpoint": key, "reason": reason}
        note(self._run.folder.events, "checkpoint-damaged", attempt=self._run.attempt, **fields)
        return f"{tier.root}/{key} on {tier.name}: {reason}"

    def _load(self, candidate: Candidate, state: dict[str, Any]) -> str | None:
        """Loads a candidate on all ranks; returns the reason where a rank could not, else None."""
        manifest, problem = self._manifest(candidate)
        wanted = Needs()
        if manifest is not None:
            kind, result = _outcome(partial(self._needs, candidate, manifest, state))
            wanted, problem = (result, None) if kind == "loaded" else (wanted, (kind, result))
        outcomes = self._ranks.gather(problem or ("loaded", ""))
        if manifest is not None and all(kind == "loaded" for kind, _ in outcomes):
            self._manifest_read = manifest
            outcomes = self._ranks.gather(self._load_own(candidate, manifest, wanted, state), long=True)
            outcomes = [each for each in outcomes if each[0] != "left"] or outcomes
        for kind, text in outcomes:
            if kind == "unfit":
                raise CheckpointError(text)
        reasons = [text for kind, text in outcomes if kind != "loaded"]
        if reasons and any(kind == "damaged" for kind, _ in outcomes):
            self.damaged.append(candidate)
            self._report("checkpoint-damaged", candidate, reason=reasons[0])
        elif reasons:
            self._log(f"{candidate.commit.name} on {candidate.tier} cannot be restored now: {reasons[0]}")
        if manifest is not None and not reasons:
            self._report_not_restored(manifest, state)
        return reasons[0] if reasons else None

    def _manifest(self, candidate: Candidate) -> tuple[Manifest | None, tuple[str, str] | None]:
        """The manifest, from the first rank that can read it, since only one node's disk may have it."""
        own: tuple[str, Any] = "unreadable", "another rank reads it"
        if self._ranks.rank == 0 or (self._by_name[candidate.tier].node_local and self._run.rank.local_rank == 0):
            own = _outcome(lambda: self._stores[candidate.tier].get(candidate.commit.manifest))
        kind, value = own
        readings = self._ranks.gather((kind, "" if kind == "loaded" else value))
        first = next((rank for rank, (kind, _) in enumerate(readings) if kind == "loaded"), None)
        if first is None:
            return None, readings[0]
        encoded = self._encoded = self._ranks.broadcast_from(first, value if first == self._ranks.rank else b"")
        decoded = _outcome(lambda: decode(encoded, candidate.commit))
        return (decoded[1], None) if decoded[0] == "loaded" else (None, decoded)

    def _needs(self, candidate: Candidate, manifest: Manifest, state: dict[str, Any]) -> Needs:
        create_optimizer_states(state)
        own = needs(manifest, state, self._ranks.rank)
        if self._by_name[candidate.tier].node_local:  # this rank may have to copy them to the next tier
            own.files |= files_taken_by(manifest, self._ranks.rank, self._ranks.world_size)
        return own

    def _load_own(
        self, candidate: Candidate, manifest: Manifest, wanted: Needs, state: dict[str, Any]
    ) -> tuple[str, str]:
        tier, store = self._by_name[candidate.tier], self._stores[candidate.tier]
        if tier.node_local:
            problem = self._node_cache.exchange(store, manifest, self._encoded, wanted.files)
            if problem is not None:
                return "unreadable", problem
        window = self._node_cache.window(candidate.commit.total_bytes)
        kind, problem = _outcome(partial(self._read, store, manifest, wanted, window, state))
        return kind, problem or ""

    def _read(
        self, store: Store, manifest: Manifest, wanted: Needs, window: Window | None, state: dict[str, Any]
    ) -> None:
        try:
            described = load_items(store, manifest, wanted.parts)
        except BaseException:
            if window is not None:
                window.report_failure()
            raise
        Restorer(store, described, self._ranks.rank, window, moved).load(state)

    def _report_not_restored(self, manifest: Manifest, state: dict[str, Any]) -> None:
        if names := not_restored(manifest, state):
            verb = "is" if len(names) == 1 else "are"
            self._log(one_line(f"{manifest.name} also has {', '.join(names)}, which {verb} not restored"))
        if names := resized(manifest, state, self._ranks.world_size):
            then, now = manifest.world_size, self._ranks.world_size
            rest = "the new ones go on from rank 0's" if now > then else "those of the other ranks are left out"
            sizes = f"each of {then} ranks had its own, and now there are {now}"
            self._log(one_line(f"{', '.join(names)}: {sizes}; {rest}"))

    def _report(self, event: str, candidate: Candidate, **more: Any) -> None:
        if self._ranks.rank != 0:
            return
        commit = candidate.commit
        fields = {"step": commit.step, "tier": candidate.tier, "checkpoint": commit.name, **more}
        note(self._run.folder.events, event, attempt=self._run.attempt, **fields)
        words = {"restored": "restored from", "checkpoint-damaged": "set aside"}[event]
        reason = f": {more['reason']}" if more else ""
        self._log(f"{words} {commit.name} on {candidate.tier}{reason}")

    def _log(self, text: str) -> None:
        if self._ranks.rank == 0:
            log.info(text)


def _was_due(tier: Tier, newest: int, step: int) -> bool:
    kind, every = steps_or_seconds(tier.every)
    return step // every * every > newest if kind == "steps" else step > newest


def _outcome(work: Callable[[], Any]) -> tuple[str, Any]:
    """`loaded` and the result; else the kind of the problem, and its reason."""
    try:
        return "loaded", work()
    except Damaged as error:
        return "damaged", str(error)
    except PeerFailed as error:
        return "left", str(error)
    except FileNotFoundError as error:
        return "damaged", f"{error.filename or error} is missing"
    except StorageError as error:
        return "unreadable", str(error)
    except CheckpointError as error:
        return "unfit", str(error)
    except Exception as error:  # noqa: BLE001 - the other ranks wait for this rank's outcome
        return "unfit", one_line(f"{type(error).__name__}: {error}".strip().partition("\n")[0])
