"""`slurmopt network lint`: variables of NCCL, torch, aws-ofi-nccl and libfabric that are wrong, each with the mend.

`--json` prints one object:

    files       how many were read
    variables   how many settings of such variables they have
    versions    library → the version that was assumed, or null
    findings    a list of file (or "environment"), line, name, value, verdict (fail or warn), what, mend, source

Exit status 1: a finding is `fail`; 2: a file could not be read, and none is.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurmopt import command_output
from slurmopt.errors import InputError, SlurmoptError, one_line
from slurmopt.network.lint.reading import files as reading
from slurmopt.network.lint.reading.mappings import of_environment
from slurmopt.network.lint.setting import FAIL, WARN, Finding, Setting
from slurmopt.network.lint.versions import TITLES, Versions, given, installed
from slurmopt.network.versions import text
from slurmopt.option_parser import OptionParser
from slurmopt.runs.text_table import cut

_PROJECT = Path("conf")
_LONGEST = 1000
"""Characters of a line; `--json` has all."""


@dataclass
class _Read:
    """What was read."""

    files: int = 0
    unreadable: int = 0
    settings: list[Setting] = field(default_factory=list)


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    versions = _versions(args)
    read = _read(args.files)
    found = _findings(read.settings, versions)
    if args.json:
        command_output.print_json(_answer(read, found, versions))
    elif read.files or not read.unreadable:
        print("\n".join([*_lines(found), _count(read, found)]))
    return 1 if any(one.verdict == FAIL for one in found) else InputError.exit_status if read.unreadable else 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt network lint`."""
    parser = OptionParser(
        "slurmopt network lint",
        description="Find variables of NCCL, torch, aws-ofi-nccl and libfabric that are removed, renamed, misspelt, "
        "contradictory or dangerous, each with the mend.",
    )
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        type=Path,
        help="scripts, YAML, container files, or folders of them (default: the environment, and conf/)",
    )
    for name, title in TITLES.items():
        parser.add_argument(
            f"--{name}", metavar="VERSION", help=f"the version of {title} (default: that of this machine)"
        )
    parser.add_argument("--json", action="store_true", help="print JSON on standard output, and nothing else")
    return parser


def _versions(args: argparse.Namespace) -> Versions:
    """The versions that were given, and those of this machine for the others."""
    wanted = {name: given(name, word) for name in TITLES if (word := getattr(args, name)) is not None}
    here = installed()
    return Versions(**{name: wanted.get(name, here.of(name)) for name in TITLES})


def _findings(settings: list[Setting], versions: Versions) -> list[Finding]:
    if not settings:
        return []
    from slurmopt.network.lint.check import findings

    return findings(settings, versions)


def _read(paths: list[Path]) -> _Read:
    read = _Read()
    if not paths:
        read.settings += of_environment(os.environ)
    for path in paths or ([_PROJECT] if _PROJECT.is_dir() else []):
        for file in _files(path, read):
            _read_file(file, read)
    return read


def _files(path: Path, read: _Read) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    try:
        yield from reading.in_folder(path)
    except OSError as error:
        _cannot_read(path, error, read)


def _read_file(path: Path, read: _Read) -> None:
    try:
        read.settings += reading.of_file(path)
        read.files += 1
    except (OSError, SlurmoptError) as error:
        _cannot_read(path, error, read)


def _cannot_read(path: Path, error: OSError | SlurmoptError, read: _Read) -> None:
    read.unreadable += 1
    message = f"{one_line(str(path))}: {error.strerror}" if isinstance(error, OSError) else str(error)
    command_output.fail(message, type(error).__name__)


def _answer(read: _Read, found: list[Finding], versions: Versions) -> dict[str, Any]:
    known = {name: versions.of(name) for name in TITLES}
    return {
        "files": read.files,
        "variables": len(read.settings),
        "versions": {name: None if one is None else text(one) for name, one in known.items()},
        "findings": [finding.as_json() for finding in found],
    }


def _lines(found: list[Finding]) -> Iterator[str]:
    for finding in found:
        yield cut(one_line(f"{finding.place()}: {finding.verdict}: {finding.setting.shown()} {finding.what}"), _LONGEST)
        yield cut(one_line(f"    mend: {finding.mend}"), _LONGEST)


def _count(read: _Read, found: list[Finding]) -> str:
    looked_at = f"{_number(len(read.settings), 'variable')} in {_number(read.files, 'file')}"
    if not found:
        return f"nothing is wrong with {looked_at}"
    counts = [f"{sum(one.verdict == verdict for one in found)} {verdict}" for verdict in (FAIL, WARN)]
    return f"{', '.join(counts)}: {looked_at}"


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
