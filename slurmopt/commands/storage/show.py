"""`slurmopt storage show`: what a file system or bucket is, each property with a verdict and the mend.

Exit status 1 where something failed. `--json` prints `place`, `kind` (the type of the file system, or `s3`) and
`results`: a list of `name`, `verdict` (pass, warn, fail, skipped), `text`, `mend`.
"""

from __future__ import annotations

import argparse

from slurmopt import command_output
from slurmopt.checks.result import CheckResult, has_failed
from slurmopt.commands.storage import place
from slurmopt.commands.storage.output import print_results
from slurmopt.slow_notice import slow_notice


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    where, kind, results = _bucket(args) if place.is_s3(args.path) else _file_system(args.path)
    if args.json:
        command_output.print_json({"place": where, "kind": kind, "results": [one.as_dict() for one in results]})
    else:
        print_results(results)
    return 1 if has_failed(results) else 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt storage show`."""
    parser = place.parser(
        "show",
        "What a file system or bucket is: options, space, quota, layout, permissions. Nothing is changed; in a bucket, "
        "small objects are written and removed, to try the permissions.",
        "a path, or s3://BUCKET/PREFIX",
    )
    place.add_s3(parser)
    return parser


def _file_system(word: str) -> tuple[str, str, list[CheckResult]]:
    from slurmopt.storage.filesystem.mounts import mount_of
    from slurmopt.storage.inspection import inspect

    path = place.existing(word)
    with slow_notice(f"looking at {path}"):
        results = inspect(path)
    mount = mount_of(path)
    return str(path), mount.kind if mount else "unknown", results


def _bucket(args: argparse.Namespace) -> tuple[str, str, list[CheckResult]]:
    from slurmopt.storage.s3.access.inspection import inspect

    with slow_notice(f"looking at {args.path}"):
        return args.path, "s3", inspect(args.path, args.endpoint, args.region)
