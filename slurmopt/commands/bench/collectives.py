"""`slurmopt bench collectives`: measures the collectives between the ranks of this machine, or shows what a run of
`+experiment=bench_collectives` has measured.

`--json` prints one object:

    format world nodes backend device torch time
    rows         a list of collective, size (bytes), seconds, iterations, wrong, fault, source (torch or nccl-tests),
                 in_place, algbw and busbw (GB/s, as nccl-tests defines them)
    links        a list of first, second (nodes, or ranks of one node), latency (seconds), bandwidth (bytes/s), size
    notes        lines
    fits         collective → alpha, alpha_error (seconds), beta, beta_error (bytes/s), relative_error, worst_size,
                 points, bad; null where there are fewer than two sizes
    outliers     a list of kind (node or link), name, measure (latency or bandwidth), value, usual, factor, links
    comparison   null, or rows and links (name, size, now, earlier in GB/s, ratio), remarks and slower (lines)

The exit status is 1 where a collective gave a wrong value.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from slurmopt import command_output
from slurmopt.collectives.comparison import Comparison, compared
from slurmopt.collectives.definitions import COLLECTIVES
from slurmopt.collectives.options import SIZES, BenchOptions, options_of
from slurmopt.collectives.recording import Recording
from slurmopt.commands.bench import local_ranks, nccl_programs, text
from slurmopt.errors import ConfigError, InputError, one_line, why_failed
from slurmopt.run_folder.access.files import replace_json
from slurmopt.runs import options, recordings
from slurmopt.slow_notice import slow_notice

_PLOTS = (".html", ".png")
_ONLY_TO_MEASURE = ("ranks", "backend", "collectives", "sizes", "iterations", "warmup", "seconds", "nccl_tests")


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    _check(args)
    earlier = None if args.against is None else recordings.read(args.against, args.folder)
    recording = _measured(args) if args.read is None else recordings.read(args.read, args.folder)
    comparison = None if earlier is None else compared(recording, earlier)
    if args.save is not None:
        _write("--save", args.save, lambda path: replace_json(path, recording.as_dict()))
    if args.plot is not None:
        _write("--plot", args.plot, lambda path: _plot(recording, comparison, path))
    return _show(args, recording, comparison)


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt bench collectives`."""
    parser = options.parser(
        "bench collectives", "Measure the collectives of torch.distributed between ranks, and links."
    )
    parser.add_argument("--ranks", type=int, metavar="N", help="ranks on this machine (default: one per GPU, else 2)")
    parser.add_argument("--backend", choices=("nccl", "gloo"), help="default: nccl with a GPU for each rank, else gloo")
    parser.add_argument("--collectives", metavar="NAME,…", help=f"default: {','.join(COLLECTIVES)}")
    parser.add_argument("--sizes", metavar="SIZES", help=f"such as 1K,64M, or a range in steps of 4 (default: {SIZES})")
    parser.add_argument("--iterations", type=int, metavar="N", help="timed calls of each size at most (default: 20)")
    parser.add_argument("--warmup", type=int, metavar="N", help="calls before those (default: 5)")
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="fewer calls of a size that needs longer (default: 1)"
    )
    parser.add_argument("--no-pairs", action="store_true", help="leave out the links one by one")
    parser.add_argument(
        "--nccl-tests", type=Path, metavar="DIR", help="also run nccl-tests from here (default: from PATH, with nccl)"
    )
    parser.add_argument(
        "--read", metavar="RUN|FILE", help="measure nothing: show a run, a saved file, or nccl-tests' output"
    )
    parser.add_argument("--against", metavar="RUN|FILE", help="compare with an earlier recording")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the recording as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a plot: .html, or .png with matplotlib")
    options.add_json(parser)
    return parser


def _check(args: argparse.Namespace) -> None:
    if args.plot is not None and args.plot.suffix.lower() not in _PLOTS:
        raise InputError(
            f"bench collectives: --plot {str(args.plot)!r} is not valid; valid: a name that ends in .html or .png"
        )
    if args.plot is not None and args.plot.suffix.lower() == ".png":
        from slurmopt.report import collectives_picture

        collectives_picture.require(args.plot)
    given = [name for name in _ONLY_TO_MEASURE if getattr(args, name) is not None] + ["no-pairs"] * args.no_pairs
    if args.read is not None and given:
        raise InputError(
            f"bench collectives: --{given[0].replace('_', '-')} is for a measurement; --read measures nothing"
        )
    for path in (args.save, args.plot):
        if path is not None and (why := _not_writable(path)) is not None:
            raise InputError(f"bench collectives: {one_line(str(path))}: {one_line(why)}")


def _not_writable(path: Path) -> str | None:
    """Why a file cannot be written, asked before minutes of measuring; None: nothing speaks against it."""
    if not os.path.isdir(path.parent):
        return f"there is no folder {path.parent}"
    if os.path.isdir(path):
        return "is a folder; give the name of a file"
    return None if os.access(path.parent, os.W_OK | os.X_OK) else f"this user may not write to {path.parent}"


def _measured(args: argparse.Namespace) -> Recording:
    given = {name: getattr(args, name) for name in ("collectives", "sizes", "iterations", "warmup", "seconds")}
    wanted = _options({name: value for name, value in given.items() if value is not None}, not args.no_pairs)
    programs = nccl_programs.find(args.nccl_tests)
    with slow_notice("measuring"):
        recording = local_ranks.measure(wanted, args.ranks, args.backend or "auto")
        if args.nccl_tests is not None or recording.backend == "nccl":
            nccl_programs.add(recording, programs, wanted)
    return recording


def _options(given: dict[str, Any], pairs: bool) -> BenchOptions:
    try:
        return options_of({**given, "pairs": pairs})
    except ConfigError as error:
        raise InputError(f"bench collectives: {str(error).replace('bench.', '--', 1)}") from error


def _write(option: str, path: Path, write: Any) -> None:
    try:
        write(path.absolute())
    except OSError as error:
        raise InputError(f"bench collectives: {option} {one_line(str(path))}: {why_failed(error)}") from error
    print(f"slurmopt: written: {one_line(str(path))}", file=sys.stderr)


def _plot(recording: Recording, comparison: Comparison | None, path: Path) -> None:
    if path.suffix.lower() == ".png":
        from slurmopt.report import collectives_picture

        collectives_picture.draw(recording, path)
    else:
        from slurmopt.report import collectives_page

        collectives_page.write(recording, comparison, path)


def _show(args: argparse.Namespace, recording: Recording, comparison: Comparison | None) -> int:
    for note in recording.notes:
        command_output.warn(one_line(note))
    for row in recording.wrong:
        command_output.fail(text.fault(row), "JobError")
    if args.json:
        command_output.print_json(text.as_json(recording, comparison))
    else:
        print(text.text(recording, comparison))
    return 1 if recording.wrong else 0
