"""The process of a node's metric sinks: reads what the rank feeds it and the node's series, and passes both on.

python -m slurmopt.job.sinks FOLDER ATTEMPT --node NODE --rank R [--of-pack] --sinks JSON

On standard input come lines of JSON: [time, step, {name: number}] for each step, {"dropped": N} where the rank had to
drop steps, and at the end {"outcome": word, "seconds": N}: the rank waits so long. The end of standard input, or of the
process that started this one, is the end too. What a sink cannot do is one line on standard error, the rank's log; the
exit status is 0.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import select
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from slurmopt.config.metrics import from_word, sinks_of_pack
from slurmopt.errors import JobError
from slurmopt.job.sinks.feed import LAST_SECONDS
from slurmopt.job.sinks.incoming import Incoming
from slurmopt.job.sinks.lane import Lane
from slurmopt.job.sinks.record import Place, Sink
from slurmopt.job.sinks.rows import Rows
from slurmopt.job.sinks.table import MODULES
from slurmopt.run_folder.layout import run_folder
from slurmopt.run_folder.private import hold_run

_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_SECOND = 1.0
_NICE = 5
_OOM_SCORE = "800"
"""Makes the kernel's OOM killer choose this process and not the training."""
_OF_THE_LAST_SECONDS = 0.7
"""Share of the time that the rank waits for this process in which the sinks may finish: lines in the log come after."""


def main(argv: list[str]) -> int:
    """Runs until nothing more comes; returns the exit status."""
    os.umask(os.umask(0o077) | 0o022)  # what it makes is nobody else's to write, whatever the training's umask
    parent = os.getppid()
    for number in _IGNORED:  # Slurm's signals are for the training, which ends this process
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(_OOM_SCORE)
    args = _parser().parse_args(argv)
    folder = run_folder(args.folder.absolute(), os.environ)
    try:
        hold_run(folder)
    except (JobError, OSError) as error:
        say(f"the metric sinks: {error}")
        return 0
    place = Place(folder, args.attempt, args.node, args.rank, os.environ)
    lanes = _lanes(sinks_of_pack(args.sinks) if args.of_pack else args.sinks, place)
    incoming = Incoming(0)
    _run(lanes, incoming, Rows(folder.recent_series(args.attempt, args.node), not args.of_pack), parent)
    _finish(lanes, incoming)
    sys.stderr.flush()
    os._exit(0)  # a client's thread that hangs is not waited for


def say(line: str) -> None:
    """One line in the rank's log; a log that cannot be written is no reason to end."""
    try:
        os.write(2, f"slurmopt: {line}\n".encode())
    except OSError:
        return


def _lanes(sinks: dict[str, Any], place: Place) -> list[Lane]:
    """A lane for each sink that this node sends to: rank 0's node to all, others to those that take measurements."""
    return [
        Lane(name, partial(_open, name, options, place), say)
        for name, options in sinks.items()
        if place.rank == 0 or options.every_node
    ]


def _open(name: str, options: Any, place: Place) -> Sink:
    sink: Sink = importlib.import_module(MODULES[name]).open_sink(options, place)
    return sink


def _run(lanes: list[Lane], incoming: Incoming, rows: Rows, parent: int) -> None:
    while not incoming.is_over and os.getppid() == parent:
        select.select([incoming], [], [], _SECOND)
        records = incoming.read() + rows.read(incoming.is_over)
        for lane in lanes:
            if records:
                lane.put(records)
            lane.look()
    if incoming.dropped:
        say(f"metrics: {incoming.dropped:,} steps came faster than they could be taken, and were dropped")


def _finish(lanes: list[Lane], incoming: Incoming) -> None:
    deadline = time.monotonic() + (incoming.seconds or LAST_SECONDS) * _OF_THE_LAST_SECONDS
    for lane in lanes:
        lane.close(incoming.outcome)
    for lane in lanes:
        lane.join(deadline)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m slurmopt.job.sinks", allow_abbrev=False)
    parser.add_argument("folder", type=Path, help="the run folder")
    parser.add_argument("attempt", type=int)
    parser.add_argument("--node", required=True)
    parser.add_argument("--rank", type=int, required=True, help="the rank that feeds this process")
    parser.add_argument(
        "--of-pack", action="store_true", help="send the measurements of a node that runs several points"
    )
    parser.add_argument("--sinks", type=from_word, required=True, metavar="JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
