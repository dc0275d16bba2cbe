"""Gives a folder a layout, and moves the files that it has already."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from slurmopt.storage.lustre import commands, hsm
from slurmopt.storage.lustre.commands import LustreError, Run
from slurmopt.storage.lustre.tree import Entry


@dataclass
class Migrated:
    """What became of the files of a folder."""

    files: int = 0
    bytes: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """Path → why the file keeps its layout."""


def migrate_all(
    entries: Sequence[Entry],
    options: Sequence[str],
    run: Run = subprocess.run,
    done: Callable[[int], None] = lambda count: None,
) -> Migrated:
    """Sets the layout of all folders, then moves file by file. Raises LustreError where a folder refuses the layout.

    Files that are in S3 only are left: moving one would load it.
    """
    for entry in entries:
        if entry.is_folder:
            commands.set_layout(entry.path, options, run)
    files = [entry for entry in entries if not entry.is_folder]
    unloaded = _in_s3_only(files, run)
    result = Migrated()
    for entry in files:
        _move(entry, options, run, result, entry.path in unloaded)
        done(entry.bytes)
    return result


def _in_s3_only(files: Sequence[Entry], run: Run) -> set[str]:
    try:
        return {entry.path for entry in hsm.find_unloaded(files, run).files}
    except LustreError:  # a file system without a data repository
        return set()


def _move(entry: Entry, options: Sequence[str], run: Run, result: Migrated, is_unloaded: bool) -> None:
    if is_unloaded:
        result.failed[entry.path] = "it is in S3 only; slurmopt storage prefetch loads it"
        return
    try:
        commands.migrate(entry.path, options, run)
    except LustreError as error:
        result.failed[entry.path] = str(error)
    else:
        result.files += 1
        result.bytes += entry.bytes
