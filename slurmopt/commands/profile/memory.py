"""`slurmopt profile memory RUN`: what ranks of a running run keep in memory, and what each step leaves behind.

`--json` prints one object:

    run folder     the run, and the folder with the records
    reason         why they were made: asked, or out-of-memory
    ranks          rank → `sentences` (text, share, evidence), and the `record`: see docs/profiling.md
    failed         ranks without a record → why
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from slurmopt import command_output
from slurmopt.commands.profile.show import tell
from slurmopt.commands.profile.trace import rank_words, step_count
from slurmopt.errors import one_line
from slurmopt.profiling import memory
from slurmopt.run_folder.captures import ASKED, MEMORY, Capture
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import options
from slurmopt.runs.find import find
from slurmopt.runs.profiling.memory_records import Records, records
from slurmopt.runs.profiling.request import ask, running
from slurmopt.runs.profiling.wait import wait


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status: 1 if a rank that was asked for has no record."""
    args = parser().parse_args(argv)
    run = find(args.run, args.folder)
    failed: dict[int, str] = {}
    name = args.capture
    if not (args.stored or name is not None):
        capture, failed = _ask(run, args.steps, args.ranks)
        name = capture.name
        if len(failed) == len(capture.ranks):
            return _tell_failed(failed)
    found = records(run, name)
    if args.json:
        command_output.print_json(_as_dict(run, found, failed))
    else:
        print("\n".join(_lines(run, found)))
    return _tell_failed(failed)


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt profile memory`."""
    parser = options.parser("profile memory", "Say what a training keeps in memory, by phase, module and line.")
    options.add_run(parser)
    parser.add_argument(
        "--steps", type=step_count, default=5, metavar="N", help="how many steps are recorded (default: 5)"
    )
    parser.add_argument(
        "--ranks", type=rank_words, default=["0"], metavar="LIST",
        help="which ranks: slowest, median, all, numbers (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--stored", action="store_true", help="the newest record that there is, also of a run that ended"
    )
    parser.add_argument("--capture", metavar="NAME", help="a record that there is")
    options.add_json(parser)
    return parser


def _ask(run: RunFolder, count: int, ranks: list[str]) -> tuple[Capture, dict[int, str]]:
    status, attempt = running(run, MEMORY)
    capture, remarks = ask(status, attempt, ranks, count, None, kind=MEMORY)
    for remark in remarks:
        command_output.warn(remark)
    numbers = ", ".join(map(str, capture.ranks))
    tell(f"asked rank{'s' if len(capture.ranks) > 1 else ''} {numbers} for the memory of {count} steps")
    results = wait(run, capture, tell)
    return capture, {rank: str(result["error"]) for rank, result in results.items() if "error" in result}


def _tell_failed(failed: dict[int, str]) -> int:
    for rank, why in failed.items():
        command_output.fail(f"profile memory: rank {rank}: {one_line(why)}", "RunError")
    return 1 if failed else 0


def _lines(run: RunFolder, found: Records) -> list[str]:
    reason = "" if found.reason in (None, ASKED) else f" ({one_line(found.reason)})"
    lines = [f"{one_line(f'{run.name}/{run.id}, {found.name}')}{reason}"]
    for rank, record in found.ranks.items():
        lines.append(f"rank {rank}")
        for said in memory.sentences(record, found.step_times.get(rank)):
            lines += [f"- {said.text}", *(f"    {row}" for row in said.evidence)]
    if any(path.suffix == ".pickle" for path in found.folder.iterdir()):
        lines.append(
            f"snapshots {one_line(str(found.folder))}/rank-*.pickle: they open in https://docs.pytorch.org/memory_viz"
        )
    return lines


def _as_dict(run: RunFolder, found: Records, failed: dict[int, str]) -> dict[str, Any]:
    return {
        "run": f"{run.name}/{run.id}",
        "folder": str(found.folder),
        "reason": found.reason,
        "ranks": {
            str(rank): {
                "sentences": [asdict(said) for said in memory.sentences(record, found.step_times.get(rank))],
                "record": record,
            }
            for rank, record in found.ranks.items()
        },
        "failed": {str(rank): why for rank, why in failed.items()},
    }
