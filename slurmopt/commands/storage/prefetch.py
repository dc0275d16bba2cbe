"""`slurmopt storage prefetch`: loads the files of an FSx data repository that are in S3 only.

Exit status 1 where a file could not be loaded, 124 where --timeout was too short. `--json` prints `path`, `files` and
`bytes` (what was in S3 only), `loaded_files`, `loaded_bytes`, `already_loaded`, `failed` (path → reason).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from slurmopt import command_output
from slurmopt.commands.checkpoint.progress import progress
from slurmopt.commands.storage import place
from slurmopt.commands.storage.output import print_failures
from slurmopt.errors import InputError, SlurmoptError, one_line, why_failed
from slurmopt.slow_notice import slow_notice
from slurmopt.storage.filesystem.usage import usage_of
from slurmopt.storage.lustre.commands import LustreError
from slurmopt.storage.lustre.hsm import Loading, Unloaded, find_unloaded
from slurmopt.storage.lustre.tree import walk
from slurmopt.units import human_bytes, seconds

_TIMED_OUT = 124


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    place.local_only("prefetch", args.path)
    limit = _limit(args.timeout)
    path = place.existing(args.path)
    place.lustre_mount(path, "so nothing is loaded from S3 there")
    try:
        found = _find(path)
        loading = Loading(found.files, args.at_once)
        is_done = args.dry_run or not found.files or _load(path, loading, found, limit)
    except LustreError as error:
        raise SlurmoptError(one_line(f"{path}: {error}{_mend(str(error), path)}")) from None
    loading.failed |= found.failed
    _say(args, path, found, loading)
    if not is_done:
        message = f"{loading.left:,} files were not loaded within {args.timeout}; what was requested goes on loading"
        command_output.fail(message, "TimeoutError")
        return _TIMED_OUT
    return 1 if loading.failed else 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt storage prefetch`."""
    parser = place.parser(
        "prefetch",
        "Loads the files of an FSx data repository that are in S3 only, so that a job does not wait for them. May be "
        "repeated: files that are loaded are left alone.",
        "a file or folder",
    )
    parser.add_argument(
        "--at-once", type=place.number, default=128, metavar="N", help="files that are loaded at a time (default: 128)"
    )
    parser.add_argument("--timeout", default="12h", metavar="TIME", help="such as 90m (default: 12h)")
    parser.add_argument("--dry-run", action="store_true", help="only count what is in S3 only")
    return parser


def _limit(text: str) -> int:
    try:
        return seconds(text)
    except ValueError as error:
        raise InputError(one_line(f"storage prefetch: argument --timeout: {error}")) from None


def _find(path: Path) -> Unloaded:
    try:
        with slow_notice(f"asking which files of {path} are in S3 only"):
            return find_unloaded(entry for entry in walk(os.fspath(path)) if not entry.is_folder)
    except OSError as error:
        raise InputError(one_line(f"{error.filename or path}: {why_failed(error)}")) from None


def _load(path: Path, loading: Loading, found: Unloaded, limit: float) -> bool:
    free = usage_of(path).free_bytes
    if free < found.bytes:
        raise InputError(
            one_line(
                f"{path}: {human_bytes(found.bytes)} are in S3 only, and {human_bytes(free)} are free; "
                "prefetch single folders, or have the file system enlarged"
            )
        )
    with progress(f"loading {len(found.files):,} files", found.bytes) as done:
        return loading.run(limit, done)


def _mend(reason: str, path: Path) -> str:
    if "ermission denied" in reason or "not permitted" in reason:
        return "; restoring is for root there: ask the administrator, or read the files once, which loads them too"
    return ""


def _say(args: argparse.Namespace, path: Path, found: Unloaded, loading: Loading) -> None:
    if args.json:
        command_output.print_json(
            {
                "path": str(path),
                "files": len(found.files),
                "bytes": found.bytes,
                "loaded_files": loading.loaded_files,
                "loaded_bytes": loading.loaded_bytes,
                "already_loaded": found.loaded,
                "failed": loading.failed,
            }
        )
        return
    print(f"{len(found.files):,} files of {human_bytes(found.bytes)} were in S3 only, {found.loaded:,} were loaded")
    if not args.dry_run and found.files:
        print(f"{loading.loaded_files:,} files of {human_bytes(loading.loaded_bytes)} are loaded now")
    print_failures(loading.failed)
