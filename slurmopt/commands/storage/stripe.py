"""`slurmopt storage stripe`: gives a new or empty folder a layout; with --migrate, also the files of another folder.

Exit status 1 where a file keeps its layout. `--json` prints `path`, `kind`, `options`, `reason`, `migrated` (`files`,
`bytes`, `failed`: path → reason; null without --migrate) and `changed` (false with --dry-run).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from slurmopt import command_output
from slurmopt.commands.checkpoint.progress import progress
from slurmopt.commands.storage import place
from slurmopt.commands.storage.output import print_failures
from slurmopt.commands.storage.planning import Planned, planned
from slurmopt.errors import InputError, SlurmoptError, one_line, why_failed
from slurmopt.slow_notice import slow_notice
from slurmopt.storage.filesystem.usage import usage_of
from slurmopt.storage.lustre import commands
from slurmopt.storage.lustre.commands import LustreError
from slurmopt.storage.lustre.migration import Migrated, migrate_all
from slurmopt.storage.lustre.tree import Entry, walk
from slurmopt.units import human_bytes


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    place.local_only("stripe", args.path)
    is_new = not os.path.lexists(args.path)
    path = place.folder(str(Path(args.path).absolute().parent)) if is_new else place.folder(args.path)
    place.lustre_mount(path, "which alone has stripes")
    target = path / Path(args.path).name if is_new else path
    entries = [] if is_new else _entries(target)
    files = [entry for entry in entries if not entry.is_folder]
    found = planned("stripe", args, path)
    _check(args, target, files)
    migrated = None
    if not args.dry_run:
        migrated = _apply(target, is_new, found, entries if args.migrate and files else [])
    _say(args, target, found, files, migrated)
    return 1 if migrated is not None and migrated.failed else 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt storage stripe`."""
    parser = place.parser(
        "stripe",
        "Gives a folder the layout that `slurmopt storage plan` shows; a folder that is not there is made. New files "
        "inherit it, files that are there keep theirs, unless --migrate copies them.",
        "a new or empty folder, or with --migrate any",
    )
    place.add_layout(parser)
    parser.add_argument("--migrate", action="store_true", help="move the files that are there with lfs migrate")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, and say what would be done")
    return parser


def _entries(folder: Path) -> list[Entry]:
    try:
        with slow_notice(f"listing {folder}"):
            return list(walk(os.fspath(folder)))
    except OSError as error:
        raise InputError(one_line(f"{error.filename or folder}: {why_failed(error)}")) from None


def _check(args: argparse.Namespace, target: Path, files: list[Entry]) -> None:
    if not files:
        return
    count = "1 file" if len(files) == 1 else f"{len(files):,} files"
    if not args.migrate:
        raise InputError(
            one_line(
                f"{target} has {count} already, and a layout changes only new ones; --migrate moves these too "
                f"({human_bytes(sum(entry.bytes for entry in files))}), or give a new folder"
            )
        )
    largest, free = max(entry.bytes for entry in files), usage_of(target).free_bytes
    if free < 2 * largest:
        raise InputError(
            one_line(
                f"{target}: the largest file has {human_bytes(largest)}, and {human_bytes(free)} are free for its copy"
            )
        )


def _apply(target: Path, is_new: bool, found: Planned, entries: list[Entry]) -> Migrated | None:
    try:
        if is_new:
            target.mkdir()
        if not entries:
            commands.set_layout(os.fspath(target), found.plan.options)
            return None
        with progress(f"migrating {target}", sum(entry.bytes for entry in entries)) as done:
            return migrate_all(entries, found.plan.options, done=done)
    except LustreError as error:
        if is_new:
            target.rmdir()
        raise SlurmoptError(one_line(f"{target}: {error}")) from None
    except OSError as error:
        raise InputError(one_line(f"{target}: {why_failed(error)}")) from None


def _say(args: argparse.Namespace, target: Path, found: Planned, files: list[Entry], migrated: Migrated | None) -> None:
    if args.json:
        moved = migrated and {"files": migrated.files, "bytes": migrated.bytes, "failed": migrated.failed}
        plan = {"options": found.plan.options, "reason": found.plan.reason}
        answer = {"path": str(target), "kind": args.kind, **plan, "migrated": moved, "changed": not args.dry_run}
        command_output.print_json(answer)
        return
    would = "would get" if args.dry_run else "has"
    print(one_line(f"{target} {would} the layout {' '.join(found.plan.options)}"))
    print(one_line(found.plan.reason))
    if args.dry_run and files:
        print(f"{len(files):,} files of {human_bytes(sum(entry.bytes for entry in files))} would be moved")
    if migrated is not None:
        print(
            f"{migrated.files:,} files of {human_bytes(migrated.bytes)} were moved, {len(migrated.failed):,} were not"
        )
        print_failures(migrated.failed)
