"""`slurmopt profile RUN`: traces ranks of a running run for some steps, and waits for the traces.

The training need not be prepared for it, nor report anything: the profiler that is part of torch makes the trace.

`--json` prints one object:

    run folder     the run, and the folder with the traces
    capture        what was asked for, as in capture.json: see docs/profiling.md
    ranks          rank → file, bytes, node and start, or error
    wall_seconds   from the request to the last trace
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from dataclasses import asdict
from typing import Any

from slurmopt import command_output
from slurmopt.errors import one_line
from slurmopt.run_folder import captures
from slurmopt.run_folder.captures import NOTICE, Capture
from slurmopt.run_folder.json_values import number, text
from slurmopt.run_folder.traced_ranks import DEFAULT
from slurmopt.runs import options
from slurmopt.runs.find import find
from slurmopt.runs.profiling.request import ask, running
from slurmopt.runs.profiling.wait import wait
from slurmopt.runs.status.query import Status
from slurmopt.units import human_bytes

_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s?")
_SHORTEST = 0.05


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status: 1 if a rank that was asked for has no trace."""
    args = parser().parse_args(argv)
    status, attempt = running(find(args.run, args.folder))
    began = time.monotonic()
    capture, remarks = ask(status, attempt, args.ranks, args.steps, args.seconds, shapes=args.shapes)
    for remark in remarks:
        command_output.warn(remark)
    _tell(f"{_asked(capture)}; they begin in {NOTICE:g} s")
    results = wait(status.folder, capture, _tell)
    seconds = time.monotonic() - began
    if args.json:
        command_output.print_json(_as_dict(status, capture, results, seconds))
    elif lines := _lines(status, capture, results, seconds):
        print("\n".join(lines))
    failed = {rank: str(result["error"]) for rank, result in results.items() if "error" in result}
    for rank, why in failed.items():
        command_output.fail(f"profile: rank {rank}: {one_line(why)}", "RunError")
    return 1 if failed else 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt profile`."""
    parser = options.parser("profile", "Trace ranks of a running run for some steps, and wait for the traces.")
    options.add_run(parser)
    span = parser.add_mutually_exclusive_group()
    span.add_argument("--steps", type=step_count, metavar="N", help="how many steps (default: 5)")
    span.add_argument("--seconds", type=_seconds, metavar="S", help="how long, such as 0.5, instead of --steps")
    parser.add_argument(
        "--ranks",
        type=rank_words,
        default=list(DEFAULT),
        metavar="LIST",
        help=f"which ranks: slowest, median, all, numbers (default: {','.join(DEFAULT)})",
    )
    parser.add_argument(
        "--shapes",
        action="store_true",
        help="with the shapes of inputs, for the roofline of matrix products; torch keeps more memory meanwhile",
    )
    options.add_json(parser)
    return parser


def step_count(word: str) -> int:
    """Reads `--steps`."""
    if not (word.isascii() and word.isdecimal() and 0 < int(word) < 10**6):
        raise argparse.ArgumentTypeError(f"{word!r} is not valid; valid: 1 to 999,999")
    return int(word)


def _seconds(word: str) -> float:
    match = _SECONDS.fullmatch(word)
    if match is None or not _SHORTEST <= float(match[1]) <= captures.LONGEST:
        raise argparse.ArgumentTypeError(f"{word!r} is not valid; valid: {_SHORTEST:g} to {captures.LONGEST:g}")
    return float(match[1])


def rank_words(word: str) -> list[str]:
    """Reads `--ranks`."""
    words = [each.strip() for each in word.split(",")]
    if not all(words):
        raise argparse.ArgumentTypeError(f"{word!r} is not valid; valid: a list such as slowest,median,0")
    return words


def _tell(line: str) -> None:
    print(f"slurmopt: {one_line(line)}", file=sys.stderr, flush=True)


def _asked(capture: Capture) -> str:
    ranks = f"rank{'s' if len(capture.ranks) > 1 else ''} {', '.join(map(str, capture.ranks))}"
    steps = "" if capture.steps is None else f" ({capture.steps} step{'s' if capture.steps > 1 else ''})"
    return f"asked {ranks} for traces of {capture.seconds:.3g} s{steps}"


def _lines(status: Status, capture: Capture, results: dict[int, dict[str, Any]], seconds: float) -> list[str]:
    folder = status.folder.capture(capture.name)
    stored = {
        rank: (one_line(file), human_bytes(number(result.get("bytes")) or 0))
        for rank, result in results.items()
        if (file := text(result.get("file"))) is not None
    }
    if not stored:
        return []
    lines = [f"{rank:>6}  {folder / file}  {size}" for rank, (file, size) in stored.items()]
    run = options.run_arg(status.folder, status.label)
    return [f"  RANK  TRACE, after {seconds:.0f} s", *lines, f"next   slurmopt profile show {run}"]


def _as_dict(status: Status, capture: Capture, results: dict[int, dict[str, Any]], seconds: float) -> dict[str, Any]:
    return {
        "run": status.label,
        "folder": str(status.folder.capture(capture.name)),
        "capture": asdict(capture),
        "ranks": {str(rank): result for rank, result in results.items()},
        "wall_seconds": round(seconds, 2),
    }
