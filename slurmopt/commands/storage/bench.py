"""`slurmopt storage bench`: measures a folder or bucket, for a few seconds, and leaves nothing there.

Exit status 1 where a rate failed. `--json` prints `place`, `bytes` (of the large file at most), `seconds` (of each rate
at most), `rates` (a list of `name`, `unit`, `per_second`, `count`, `seconds`, `how`) and `results` as `show` does.
"""

from __future__ import annotations

import argparse
from typing import Any

from slurmopt import command_output
from slurmopt.checks.result import CheckResult, has_failed
from slurmopt.commands.checkpoint.progress import progress
from slurmopt.commands.storage import place
from slurmopt.commands.storage.output import print_results
from slurmopt.errors import InputError, why_failed
from slurmopt.storage.rates.rate import MIB, Rate

_BYTES = 256 * MIB
_LEAST_BYTES, _MOST_BYTES = 8 * MIB, 64 << 30
_SECONDS = 3.0


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    if not _LEAST_BYTES <= args.bytes <= _MOST_BYTES:
        raise InputError(f"storage bench: --bytes: {args.bytes:,} is not from 8M to 64G")
    args.bytes -= args.bytes % (4 * MIB)  # whole blocks, as direct I/O needs them
    is_s3 = place.is_s3(args.path)
    measured = _bucket(args) if is_s3 else _folder(args)
    results = [result for _, result in measured]
    if args.json:
        rates = [_json(rate) for rate, _ in measured if rate is not None]
        facts = {"place": args.path, "bytes": args.bytes, "seconds": args.seconds}
        command_output.print_json({**facts, "rates": rates, "results": [one.as_dict() for one in results]})
    else:
        print_results(results)
    return 1 if has_failed(results) else 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt storage bench`."""
    parser = place.parser(
        "bench",
        "Measures a folder (sequential, random, small files, metadata) or bucket (one connection, several), by one "
        "process. Everything is written into a folder or prefix of its own and removed.",
        "a folder, or s3://BUCKET/PREFIX",
    )
    parser.add_argument(
        "--bytes", type=place.size, default=_BYTES, metavar="SIZE", help="of the large file at most (default: 256M)"
    )
    parser.add_argument(
        "--seconds", type=place.seconds, default=_SECONDS, metavar="N", help="for each rate at most (default: 3)"
    )
    place.add_s3(parser)
    return parser


def _folder(args: argparse.Namespace) -> list[tuple[Rate | None, CheckResult]]:
    from slurmopt.storage.inspection import bytes_left_by_quota
    from slurmopt.storage.rates.many_files import MOST_FILES
    from slurmopt.storage.rates.measure import SMALL_BYTES, measure
    from slurmopt.storage.rates.workplace import check_room

    path = place.folder(args.path)
    try:
        needed, least = args.bytes + SMALL_BYTES, _LEAST_BYTES + SMALL_BYTES
        check_room(path, needed, MOST_FILES, least, quota_left=bytes_left_by_quota(path))
    except OSError as error:
        raise InputError(f"{path}: {why_failed(error)}") from None
    with progress(f"measuring {path}", 2 * args.bytes) as done:
        return [*measure(path, args.bytes, args.seconds, done)]


def _bucket(args: argparse.Namespace) -> list[tuple[Rate | None, CheckResult]]:
    from slurmopt.storage.s3.access.rates import measure

    with progress(f"measuring {args.path}", 4 * args.bytes) as done:
        return measure(args.path, args.endpoint, args.region, args.bytes, args.seconds, done)


def _json(rate: Rate) -> dict[str, Any]:
    return {
        "name": rate.name,
        "unit": rate.unit,
        "per_second": rate.per_second,
        "count": rate.count,
        "seconds": rate.seconds,
        "how": rate.how,
    }
