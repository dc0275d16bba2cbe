"""`slurmopt checkpoint prune`: deletes checkpoints of a run that has ended, by the ledger, as the run itself would.

Never the newest of a tier, nor what one that stays refers to. The record is put under the newest attempt's next number:
an attempt that begins meanwhile takes that number first, and then nothing is deleted.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import NamedTuple

from slurmopt.checkpoint.commit.retention import expired
from slurmopt.checkpoint.format.ledger import Commit, Ledger, Records
from slurmopt.commands.checkpoint.catalog import CHECKPOINT_HELP, Catalog, Place, add_tier, catalog
from slurmopt.errors import InputError, RunError
from slurmopt.run_folder import events
from slurmopt.run_folder.process import mark, marked
from slurmopt.runs import options
from slurmopt.runs.ownership import refuse_others
from slurmopt.runs.status.query import gather
from slurmopt.units import human_bytes

_OURS = re.compile(r"step-\d{8,}/[A-Za-z0-9-]+/(?:rank-\d{5,}\.bin|manifest\.json)")
"""Nothing else is deleted, whatever a record or a folder says: others may be able to write there."""


class Doomed(NamedTuple):
    """What is to go from one place."""

    place: Place
    names: list[str]


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    given = parser().parse_args(argv)
    _check(given)
    found = catalog(given)
    if found.run is not None:
        refuse_others(found.run)
    doomed = [each for place in found.places if (each := Doomed(place, _names(found, place, given))).names]
    _missing(found, doomed, given)
    if not doomed:
        print("nothing to delete")
        return 0
    print("\n".join(_lines(doomed)))
    if given.dry_run:
        return 0
    _refuse_living(found)
    if not given.yes and not _agreed(sum(len(each.names) for each in doomed)):
        print("nothing was deleted")
        return 0
    for each in doomed:
        _prune(found, each)
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt checkpoint prune`."""
    made = options.parser("checkpoint prune", "Delete checkpoints of a run that has ended; asks first.")
    made.add_argument("run", metavar="RUN", help=options.RUN_HELP)
    made.add_argument("checkpoints", nargs="*", metavar="CHECKPOINT", help=CHECKPOINT_HELP.partition(", or latest")[0])
    made.add_argument(
        "--keep", type=int, metavar="N", help="all but the last N, and what keep_every and best of its config keep"
    )
    made.add_argument("--damaged", action="store_true", help="those that were found damaged and set aside")
    add_tier(made, "delete from this tier only")
    made.add_argument("--dry-run", action="store_true", help="only say what would go")
    made.add_argument("--yes", action="store_true", help="do not ask")
    return made


def _check(given: argparse.Namespace) -> None:
    if not given.checkpoints and given.keep is None and not given.damaged:
        raise InputError("checkpoint prune: say what may go: CHECKPOINT …, --keep N or --damaged")
    if given.keep is not None and given.keep < 1:
        raise InputError(f"checkpoint prune: --keep {given.keep} is too few; the newest always stays, so 1 or more")
    if not (given.yes or given.dry_run or sys.stdin.isatty()):
        raise InputError("checkpoint prune: nobody can be asked here; add --yes, or --dry-run to look")


def _names(found: Catalog, place: Place, given: argparse.Namespace) -> list[str]:
    """What goes from `place`, oldest first."""
    records = place.records
    named = {found.find(word).name for word in given.checkpoints} & {commit.name for commit in records.commits}
    names = set(named)
    if given.keep is not None and place.tier is not None:
        tier = place.tier
        names |= set(expired(
            records.commits, keep=given.keep, keep_every=tier.keep_every, best=tier.best, metric=tier.metric,
            mode=tier.mode,
        ))  # fmt: skip
    if given.damaged:
        names |= {name for name in records.damaged if _OURS.fullmatch(f"{name}/manifest.json")}
    _refuse_newest(place, named)
    return sorted(_not_needed(place, names, named))


def _refuse_newest(place: Place, named: set[str]) -> None:
    commits = place.records.commits
    newest = {commits[0].name, max(commits, key=lambda each: (each.attempt, each.time)).name} if commits else set()
    if refused := named & newest:
        raise RunError(f"{min(refused)} is the newest on {place.name}, and always stays")


def _not_needed(place: Place, names: set[str], named: set[str]) -> set[str]:
    """`names` without what others that stay refer to; RunError where one of these was asked for by name."""
    while True:
        needed = {name: commit for commit in _staying(place.records, names) for name in commit.references}
        if refused := named & needed.keys():
            name = min(refused)
            raise RunError(f"{name} on {place.name} holds a part of {needed[name].name}, so it stays as long as that")
        if not names & needed.keys():
            return names
        names = names - needed.keys()


def _staying(records: Records, names: set[str]) -> list[Commit]:
    return [commit for commit in records.commits if commit.name not in names]


def _missing(found: Catalog, doomed: list[Doomed], given: argparse.Namespace) -> None:
    if found.run is None:
        raise RunError(f"{found.label} belongs to no run whose journal says that it has ended; remove it as a folder")
    if not doomed and given.checkpoints and not found.places:
        raise RunError(f"no tier of {found.label} can be read from here")


def _lines(doomed: list[Doomed]) -> list[str]:
    lines = []
    for place, names in doomed:
        sizes = {commit.name: human_bytes(commit.bytes) for commit in place.records.commits}
        lines += [f"{place.name}  {name}  {sizes.get(name, 'damaged')}" for name in names]
    return lines


def _refuse_living(found: Catalog) -> None:
    assert found.run is not None
    (status,), problem = gather([found.run], fresh=True)
    if status.alive:
        raise RunError(f"{found.label} is {status.state} and prunes for itself; cancel it first, or wait for its end")
    if status.state == "unknown":
        raise RunError(f"nobody can say whether {found.label} still runs ({problem or status.detail}); try again later")
    for place in found.places:
        for numbers in place.records.by_attempt.values():
            if (pid := marked(numbers[max(numbers)].get("owner"))) is not None:
                raise RunError(f"process {pid} still saves checkpoints of {found.label}; wait for it or stop it")


def _agreed(count: int) -> bool:
    print(f"delete {'this one' if count == 1 else f'these {count}'}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _prune(found: Catalog, doomed: Doomed) -> None:
    place, names = doomed
    attempt = max(place.records.by_attempt)
    hold = Ledger(place.store, attempt, mark())
    hold.open()
    _refuse_changed(found, place, hold.records)
    files = [key for name in names for key in place.store.list(f"{name}/") if _OURS.fullmatch(key)]
    hold.prune(names, files)
    assert found.run is not None
    events.append(found.run.events, "checkpoint-pruned", tier=place.name, checkpoints=names)
    print(f"{place.name}: {len(names)} deleted")


def _refuse_changed(found: Catalog, place: Place, now: Records) -> None:
    """What was shown must still be what there is."""
    if {commit.name for commit in now.commits} != {commit.name for commit in place.records.commits}:
        raise RunError(f"{found.label} has changed on {place.name} meanwhile; look again")
