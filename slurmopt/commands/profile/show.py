"""`slurmopt profile show`: what the traces of a run say, in sentences and as a page.

`--json` prints one object:

    label folder reason   the traces, and why slurmopt made them
    sentences       text, share (of the time, 0 to 1), evidence: a list of rows
    ranks           rank, device, steps, seconds (examined), step_seconds, shares (name → seconds), communication,
                    hidden, unexplained (seconds), by_step (shares of each step), operations (name, calls, seconds),
                    products (matrix products of known shapes: operator, batch, m, n, k, type, calls, seconds, rate and
                    limit in operations per second, intensity in operations per byte)
    straggler       rank, last (so many of `collectives` it started last), collectives, waited (seconds), slowest; null
                    without collectives of several ranks
    failed          ranks without a trace → why
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slurmopt import command_output
from slurmopt.errors import InputError, one_line, why_failed
from slurmopt.profiling.analysis import Profile, RankProfile
from slurmopt.profiling.sentences import operation_text, sentences, slowest_rank
from slurmopt.profiling.wording import Sentence
from slurmopt.runs import options
from slurmopt.runs.profiling.traces import Source, read_all, source_of

_TOP = 8


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    if args.html is not None and args.html.suffix.lower() != ".html":
        raise InputError(f"profile show: --html {str(args.html)!r} is not valid; valid: a name that ends in .html")
    source = source_of(args.run, args.folder, args.capture)
    profile = read_all(source, tell)
    said = sentences(profile)
    if args.html is not None:
        _write_page(source, profile, said, args.html)
    if args.json:
        command_output.print_json(_as_json(source, profile, said))
    else:
        print("\n".join(_lines(source, profile, said)))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt profile show`."""
    parser = options.parser("profile show", "Say what the traces of a run show.")
    parser.add_argument("run", nargs="?", metavar="RUN", help=f"{options.RUN_HELP}; or a trace, or a folder of traces")
    parser.add_argument("--capture", metavar="NAME", help="one of the run's captures (default: the newest)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page, too: a name in .html")
    options.add_json(parser)
    return parser


def tell(line: str) -> None:
    """Progress, on standard error."""
    print(f"slurmopt: {line}", file=sys.stderr, flush=True)


def _write_page(source: Source, profile: Profile, said: list[Sentence], path: Path) -> None:
    from slurmopt.report import profile_page

    try:
        profile_page.write(source.label, profile, said, path)
    except OSError as error:
        raise InputError(f"profile show: {path}: {why_failed(error)}") from None
    tell(f"wrote {path}")


def _lines(source: Source, profile: Profile, said: list[Sentence]) -> list[str]:
    one = slowest_rank(profile)
    kind = "KERNELS" if one.breakdown.has_device else "OPERATORS"
    top = [f"  {operation_text(each, one.breakdown.steps)}" for each in one.operations[:_TOP]]
    said_lines = [line for each in said for line in (f"- {each.text}", *(f"    {row}" for row in each.evidence))]
    reason = "" if source.reason in (None, "asked") else f" ({source.reason})"
    return [
        f"{source.label}{reason}",
        *(f"  rank {rank} has no trace: {why}" for rank, why in source.failed.items()),
        *said_lines,
        f"TOP {kind} of rank {one.rank}",
        *top,
        f"traces {one_line(str(source.folder))}: they open in https://ui.perfetto.dev, which uploads nothing",
    ]


def _as_json(source: Source, profile: Profile, said: list[Sentence]) -> dict[str, Any]:
    return {
        "label": source.label,
        "folder": str(source.folder),
        "reason": source.reason,
        "sentences": [asdict(each) for each in said],
        "ranks": [_rank(each) for each in profile.ranks],
        "straggler": None if profile.straggler is None else asdict(profile.straggler),
        "failed": {str(rank): why for rank, why in source.failed.items()},
    }


def _rank(one: RankProfile) -> dict[str, Any]:
    whole = one.breakdown
    return {
        "rank": one.rank,
        "device": one.device,
        "steps": whole.steps,
        "seconds": whole.seconds,
        "step_seconds": one.step_seconds,
        "shares": whole.shares,
        "communication": whole.communication,
        "hidden": whole.hidden,
        "unexplained": whole.unexplained,
        "by_step": whole.by_step,
        "operations": [asdict(each) for each in one.operations],
        "products": [
            {**asdict(each), "rate": each.rate, "intensity": each.intensity, "limit": each.limit(one.device)}
            for each in one.products
        ],
    }
