"""`slurmopt history`: prints the attempts of a run: when and where each ran, why it ended, what it cost.

`--json` prints one object; times are seconds since the epoch, durations are seconds, unknown values are null. For the
definitions of steps lost, queue, restart and efficiency see `slurmopt.runs.history.timeline`.

    name id folder backend state detail created      as `slurmopt status` has them
    attempts           a list of objects, oldest first:
        attempt job nodes node_count started ended seconds signals
        cause          a word of `slurmopt.restart.causes`
        outcome exit_code rank node error            of its verdict
        next reason    who brings the run back (requeue, slurm, submit; null: it ended), and why so
        by             who gave the verdict, where the attempt itself could not: next attempt, tend
        hang           null, or rank, node, step, seconds of the watchdog's finding
        base last_step steps_done steps_lost durable
        restored_from  the tier of the checkpoint that it restored
        queue_seconds restart_seconds
        restart        the parts of the restart: shell, check, rendezvous, setup, restore, first step
    events             other events, oldest first: `time`, `event`, `attempt` (the latest then), `text`
    totals             attempts causes wall_seconds run_seconds queue_seconds restart_seconds restore_seconds last_step
                       steps_done steps_lost steps_per_attempt node_hours node_hours_lost gpu_hours gpu_hours_lost
                       efficiency
"""

from __future__ import annotations

import argparse

from slurmopt import command_output
from slurmopt.runs import options
from slurmopt.runs.find import find
from slurmopt.runs.history.query import as_dict, history
from slurmopt.runs.history.view import page


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    run_history = history(find(args.run, args.folder))
    if args.json:
        command_output.print_json(as_dict(run_history))
    else:
        print(page(run_history))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt history`."""
    parser = options.parser("history", "Show the attempts of a run: causes of their ends, lost steps and GPU-hours.")
    options.add_run(parser)
    options.add_json(parser)
    return parser
