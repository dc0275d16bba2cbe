"""Plans a layout from options, and from the files that are there."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path

from slurmopt.commands.storage import place
from slurmopt.errors import InputError, one_line, why_failed
from slurmopt.slow_notice import slow_notice
from slurmopt.storage.lustre import commands
from slurmopt.storage.lustre.commands import LustreError
from slurmopt.storage.lustre.layouts import Plan, plan
from slurmopt.storage.lustre.tree import walk

_SECONDS, _MOST_FILES = 10.0, 200_000
"""For counting the files that are there: a sample will do."""


@dataclass(frozen=True)
class Planned:
    """A layout, and what it is planned for."""

    plan: Plan
    file_bytes: int
    files: int
    osts: int


def planned(command: str, args: argparse.Namespace, path: Path) -> Planned:
    """The layout for the options of a command; `path` exists. Raises InputError where something is not known."""
    if args.osts is None:
        place.lustre_mount(path, "and has no OSTs; --osts N plans for a Lustre file system elsewhere")
    file_bytes, files = args.file_size, args.files
    if args.kind == "logs":
        file_bytes, files = file_bytes or 0, files or 1
    if file_bytes is None or files is None:
        count, total = _found(path)
        if not count:
            raise InputError(one_line(f"storage {command}: {path} has no files to go by; give --file-size and --files"))
        file_bytes = total // count if file_bytes is None else file_bytes
        files = count if files is None else files
    osts = _osts(path) if args.osts is None else args.osts
    return Planned(plan(args.kind, file_bytes, files, osts), file_bytes, files, osts)


def _found(path: Path) -> tuple[int, int]:
    """The number of files, and their bytes."""
    count = total = 0
    end = time.monotonic() + _SECONDS
    try:
        with slow_notice(f"counting the files of {path}"):
            for entry in walk(os.fspath(path)):
                if not entry.is_folder:
                    count, total = count + 1, total + entry.bytes
                if count >= _MOST_FILES or time.monotonic() > end:
                    break
    except OSError as error:
        raise InputError(one_line(f"{error.filename or path}: {why_failed(error)}")) from None
    return count, total


def _osts(path: Path) -> int:
    try:
        return commands.count_osts(os.fspath(path))
    except LustreError as error:
        raise InputError(one_line(f"{path}: {error}; --osts N plans without lfs")) from None
