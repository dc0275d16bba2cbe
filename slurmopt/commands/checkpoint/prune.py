"""`slurmopt checkpoint prune`: deletes checkpoints of a run that has ended, through the ledger, as the run would.

It never deletes the newest checkpoint of a tier, nor files that a remaining one references. Its record takes the next
number of the newest attempt: if another attempt begins meanwhile, it takes that number first, and nothing is deleted.
`--json`, which needs `--yes` or `--dry-run`, prints a list of objects with `tier`, `checkpoint`, `bytes` (null for a
damaged one) and `deleted` (false with `--dry-run`).
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import NamedTuple

from slurmopt import command_output
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
"""The only files that are deleted, whatever a record says: other users may be able to write there."""


class Deletion(NamedTuple):
    """The checkpoints to delete from one place."""

    place: Place
    names: list[str]


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    _check(args)
    run_catalog = catalog(args)
    if run_catalog.run is not None:
        refuse_others(run_catalog.run)
    deletions = [
        each for place in run_catalog.places if (each := Deletion(place, _names(run_catalog, place, args))).names
    ]
    _missing(run_catalog, deletions, args)
    if not args.json:
        print("\n".join(_lines(deletions)) or "nothing to delete")
    if deletions and not args.dry_run:
        _refuse_living(run_catalog)
        if not args.yes and not _confirmed(sum(len(each.names) for each in deletions)):
            print("nothing was deleted")
            return 0
        for each in deletions:
            _prune(run_catalog, each)
            if not args.json:
                print(f"{each.place.name}: {len(each.names)} deleted")
    if args.json:
        command_output.print_json(_as_dicts(deletions, not args.dry_run))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt checkpoint prune`."""
    parser = options.parser("checkpoint prune", "Delete checkpoints of a run that has ended; asks first.")
    parser.add_argument("run", metavar="RUN", help=options.RUN_HELP)
    parser.add_argument(
        "checkpoints", nargs="*", metavar="CHECKPOINT", help=CHECKPOINT_HELP.partition(", or latest")[0]
    )
    parser.add_argument(
        "--keep",
        type=int,
        metavar="N",
        help="all except the last N and those that keep_every and best of its config keep",
    )
    parser.add_argument("--damaged", action="store_true", help="those that are damaged and were set aside")
    add_tier(parser, "delete from this tier only")
    parser.add_argument("--dry-run", action="store_true", help="print what would be deleted")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options.add_json(parser)
    return parser


def _check(args: argparse.Namespace) -> None:
    if not args.checkpoints and args.keep is None and not args.damaged:
        raise InputError("checkpoint prune: name what to delete: CHECKPOINT …, --keep N or --damaged")
    if args.keep is not None and args.keep < 1:
        raise InputError(f"checkpoint prune: --keep {args.keep} is too few; the newest always stays, so 1 or more")
    if not (args.yes or args.dry_run or (sys.stdin.isatty() and not args.json)):
        why = "--json does not ask" if args.json else "there is no terminal to confirm on"
        raise InputError(f"checkpoint prune: {why}; add --yes, or --dry-run to look")


def _names(run_catalog: Catalog, place: Place, args: argparse.Namespace) -> list[str]:
    """The checkpoints to delete from `place`, oldest first."""
    records = place.records
    named = {run_catalog.find(word).name for word in args.checkpoints} & {commit.name for commit in records.commits}
    names = set(named)
    if args.keep is not None and place.tier is not None:
        tier = place.tier
        names |= set(expired(
            records.commits, keep=args.keep, keep_every=tier.keep_every, best=tier.best, metric=tier.metric,
            mode=tier.mode,
        ))  # fmt: skip
    if args.damaged:
        names |= {name for name in records.damaged if _OURS.fullmatch(f"{name}/manifest.json")}
    _refuse_newest(place, named)
    return sorted(_not_needed(place, names, named))


def _refuse_newest(place: Place, named: set[str]) -> None:
    commits = place.records.commits
    newest = {commits[0].name, max(commits, key=lambda each: (each.attempt, each.time)).name} if commits else set()
    if refused := named & newest:
        raise RunError(f"{min(refused)} is the newest on {place.name}, and always stays")


def _not_needed(place: Place, names: set[str], named: set[str]) -> set[str]:
    """`names` without those that remaining checkpoints reference; RunError where the user has named one of these."""
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


def _missing(run_catalog: Catalog, deletions: list[Deletion], args: argparse.Namespace) -> None:
    if run_catalog.run is None:
        raise RunError(
            f"{run_catalog.label} belongs to no run whose journal says that it has ended; remove it as a folder"
        )
    if not deletions and args.checkpoints and not run_catalog.places:
        raise RunError(f"no tier of {run_catalog.label} can be read from here")


def _lines(deletions: list[Deletion]) -> list[str]:
    return [
        f"{place.name}  {name}  {'damaged' if size is None else human_bytes(size)}"
        for place, names in deletions
        for name, size in _sizes(place, names).items()
    ]


def _as_dicts(deletions: list[Deletion], are_deleted: bool) -> list[dict[str, object]]:
    return [
        {"tier": place.name, "checkpoint": name, "bytes": size, "deleted": are_deleted}
        for place, names in deletions
        for name, size in _sizes(place, names).items()
    ]


def _sizes(place: Place, names: list[str]) -> dict[str, int | None]:
    """The bytes of each checkpoint; None of a damaged one."""
    sizes = {commit.name: commit.bytes for commit in place.records.commits}
    return {name: sizes.get(name) for name in names}


def _refuse_living(run_catalog: Catalog) -> None:
    assert run_catalog.run is not None
    (status,), problem = gather([run_catalog.run], fresh=True)
    if status.alive:
        raise RunError(
            f"{run_catalog.label} is {status.state} and prunes for itself; cancel it first, or wait for its end"
        )
    if status.state == "unknown":
        raise RunError(
            f"it is not known whether {run_catalog.label} still runs ({problem or status.detail}); try again later"
        )
    for place in run_catalog.places:
        for numbers in place.records.by_attempt.values():
            if (pid := marked(numbers[max(numbers)].get("owner"))) is not None:
                raise RunError(f"process {pid} still saves checkpoints of {run_catalog.label}; wait for it or stop it")


def _confirmed(count: int) -> bool:
    print(f"delete {'this one' if count == 1 else f'these {count}'}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _prune(run_catalog: Catalog, deletion: Deletion) -> None:
    place, names = deletion
    attempt = max(place.records.by_attempt)
    own_ledger = Ledger(place.store, attempt, mark())
    own_ledger.open()
    _refuse_changed(run_catalog, place, own_ledger.records)
    files = [key for name in names for key in place.store.list(f"{name}/") if _OURS.fullmatch(key)]
    own_ledger.prune(names, files)
    assert run_catalog.run is not None
    events.append(run_catalog.run.events, "checkpoint-pruned", tier=place.name, checkpoints=names)


def _refuse_changed(run_catalog: Catalog, place: Place, now: Records) -> None:
    """Raises RunError where the checkpoints have changed since they were shown."""
    if {commit.name for commit in now.commits} != {commit.name for commit in place.records.commits}:
        raise RunError(f"{run_catalog.label} has changed on {place.name} meanwhile; look again")
