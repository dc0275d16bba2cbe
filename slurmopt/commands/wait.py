"""`slurmopt wait`: waits until runs, sweeps and points have ended.

The exit status is 0 if all have finished, 1 if one ended otherwise, 124 if `--timeout` came first, and 130 after
Ctrl-C. With `--any` it is that of the first one that ends. `--json` prints at the end what `slurmopt status --all
--json` does, with `--any` of those that have ended.
"""

from __future__ import annotations

import argparse

from slurmopt import command_output
from slurmopt.errors import InputError
from slurmopt.run_folder.access.open_folders import holding
from slurmopt.runs import options
from slurmopt.runs.desktop import show_end
from slurmopt.runs.find import select, top_folder
from slurmopt.runs.replaced_folders import MOST
from slurmopt.sweeps.status.waiting import Waiting
from slurmopt.units import human_seconds, seconds

TIMED_OUT = 124
"""As of timeout(1)."""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    limit = None if args.timeout is None else _span(args.timeout)
    items = [select(name, args.folder) for name in args.runs or [None]]
    waiting = Waiting(items)
    with holding([top_folder(item).path for item in items[:MOST]]):
        has_ended = waiting.wait(limit, any_of_them=args.any)
    for run in waiting.awaited_runs():
        show_end(run)
    ended = waiting.ended if args.any else waiting.states
    if not args.json:
        print("\n".join(f"{label}: {state.text}" for label, state in ended.items()) or "none has ended", flush=True)
    if not has_ended:
        left = ", ".join(label for label, state in waiting.states.items() if not state.over)
        command_output.fail(f"not ended after {human_seconds(limit or 0)}: {left}", TimeoutError.__name__)
    if args.json:
        command_output.print_json(waiting.as_list(ended))
    if not has_ended:
        return TIMED_OUT
    return 0 if all(state.finished for state in ended.values()) else 1


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt wait`."""
    parser = options.parser("wait", "Wait until runs have ended. Exit status 0: all have finished.")
    parser.add_argument("runs", nargs="*", metavar="RUN", help=options.RUN_HELP)
    parser.add_argument("--timeout", metavar="TIME", help="wait so long at most, such as 2h; then the status is 124")
    parser.add_argument("--any", action="store_true", help="until one of them has ended")
    options.add_json(parser)
    return parser


def _span(timeout: str) -> int:
    try:
        return seconds(timeout)
    except ValueError as error:
        raise InputError(f"wait: --timeout: {error}") from error
