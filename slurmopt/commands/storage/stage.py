"""`slurmopt storage stage`: copies a folder, a file or a prefix of S3 to the disk of this machine, as a job would do.

Exit status 1 where the source or the disk fails, 2 where one of them is not what it must be. `--json` prints `source`,
`path` (of the copy), `files` and `bytes` (of the source), `copied_files`, `copied_bytes`, `seconds` and `removed` (the
sources of copies that were removed because nobody used them); with `--remove` it prints `source` and `removed` alone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from slurmopt import command_output
from slurmopt.commands.storage import place
from slurmopt.config.storage import VERIFY
from slurmopt.errors import InputError, StagingError, one_line
from slurmopt.storage.staging.node_folder import open_root, remove_copies
from slurmopt.storage.staging.source import Source, open_source
from slurmopt.storage.staging.stage import Staged, stage

_SILENT_SECONDS, _LOG_SECONDS = 2.0, 30.0


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    s3 = {"endpoint": args.endpoint, "region": args.region} if place.is_s3(args.path) else None
    source = args.path if s3 is not None else os.path.abspath(os.path.expanduser(args.path))
    if "" in (args.path, args.to):
        raise InputError("storage stage: a path is empty; is a variable not set?")
    into = os.path.abspath(os.path.expanduser(args.to or os.environ.get("TMPDIR") or "/tmp"))  # noqa: S108
    try:
        if args.remove:
            return _remove(open_source(source, s3), source, into, args.json)
        with _shown() as progress:
            staged = stage(open_source(source, s3), into, args.verify, True, progress)
    except StagingError as error:
        if error.fault == "user":
            raise InputError(f"storage stage: {error}") from None
        raise
    staged.copy.leave()
    _say(args, source, staged)
    return 0


def _remove(source: Source, place: str, into: str, as_json: bool) -> int:
    """Removes the copies of a source, which need not exist any more. Raises StagingError, also if one is used."""
    removed, used = remove_copies(open_root(into), source.identity) if os.path.lexists(into) else (0, 0)
    if used:
        raise StagingError(one_line(f"a job uses the copy of {place} in {into}, which stays"), "node")
    if as_json:
        command_output.print_json({"source": place, "removed": [place] * removed})
    else:
        print(one_line(f"{'removed the copy' if removed else 'there is no copy'} of {place} in {into}"))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt storage stage`."""
    parser = place.parser(
        "stage",
        "Copies a folder, a file or a prefix of S3 to a disk of this machine, as `storage.stage` does on each node of "
        "a job. What is there already is verified and not copied again. The copy stays until a job needs its space.",
        "a folder, a file, or s3://BUCKET/PREFIX",
    )
    parser.add_argument("--to", metavar="DIR", help="a folder on a local disk (default: $TMPDIR, else /tmp)")
    verify = "what is compared of files that are there: their size and time, or their content (default: size)"
    parser.add_argument("--verify", choices=VERIFY, default="size", help=verify)
    parser.add_argument("--remove", action="store_true", help="remove the copy, unless a job uses it; copies nothing")
    place.add_s3(parser)
    return parser


@contextlib.contextmanager
def _shown() -> Iterator[Callable[[str], None]]:
    """Yields what shows the progress after two seconds: a line of a terminal, elsewhere a line each half minute."""
    shown = _Status() if sys.stderr.isatty() else _Lines()
    try:
        yield shown.show
    finally:
        shown.close()


class _Lines:
    def __init__(self) -> None:
        self._next = time.monotonic() + _SILENT_SECONDS

    def show(self, text: str) -> None:
        if (now := time.monotonic()) >= self._next:
            self._next = now + _LOG_SECONDS
            print(f"slurmopt: {one_line(text)}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Does nothing."""


class _Status:
    def __init__(self) -> None:
        self._first = time.monotonic() + _SILENT_SECONDS
        self._status: Any = None  # rich takes a tenth of a second to import
        self._lock = threading.Lock()  # several threads copy

    def show(self, text: str) -> None:
        if time.monotonic() < self._first:
            return
        from rich.console import Console
        from rich.text import Text

        with self._lock:
            if self._status is None:
                self._status = Console(stderr=True).status("")
                self._status.start()
            self._status.update(Text(one_line(text)))

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()


def _say(args: argparse.Namespace, source: str, staged: Staged) -> None:
    if args.json:
        names = ("path", "files", "bytes", "copied_files", "copied_bytes", "seconds", "removed")
        command_output.print_json({"source": source, **{name: getattr(staged, name) for name in names}})
        return
    print(staged.account(source))
