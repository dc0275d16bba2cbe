"""`slurmopt storage plan`: the Lustre layout for a kind of data, and why. Nothing is changed.

`--json` prints `path`, `kind`, `options` (of lfs setstripe), `reason`, `advice` (what would help more, or null),
`file_bytes`, `files`, `osts`.
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict

from slurmopt import command_output
from slurmopt.commands.storage import place
from slurmopt.commands.storage.planning import Planned, planned
from slurmopt.errors import one_line
from slurmopt.storage.filesystem.mounts import mount_of


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    place.local_only("plan", args.path)
    path = place.existing(args.path)
    found = planned("plan", args, path)
    if args.json:
        sizes = {"file_bytes": found.file_bytes, "files": found.files, "osts": found.osts}
        command_output.print_json({"path": str(path), "kind": args.kind, **asdict(found.plan), **sizes})
        return 0
    print(one_line(f"lfs setstripe {' '.join(found.plan.options)} {shlex.quote(str(path))}"))
    print(one_line(found.plan.reason))
    if found.plan.advice:
        print(f"better: {found.plan.advice}")
    mount = mount_of(path)
    if mount is not None and mount.kind == "lustre":
        print(one_line(f"next: {_next(args, found, str(path))}"))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt storage plan`."""
    parser = place.parser("plan", "The Lustre layout for a kind of data, and why. Nothing is changed.", "a folder")
    place.add_layout(parser)
    return parser


def _next(args: argparse.Namespace, found: Planned, path: str) -> str:
    size = f"--file-size {found.file_bytes} --files {found.files}"
    return f"slurmopt storage stripe {shlex.quote(path)} --kind {args.kind} {size}"
