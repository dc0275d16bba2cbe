"""`slurmopt history`: the story of a run. When each attempt ran and where, why it ended, what that cost.

`--json` prints one object; times are seconds since the epoch, spans are seconds, null is where nothing tells. What
steps lost, queue, restart and efficiency are: see `slurmopt.runs.history.timeline`.

    name id folder backend state detail created      as `slurmopt status` has them
    attempts           a list of objects, oldest first:
        attempt job nodes node_count started ended seconds signals
        cause          a word of `slurmopt.restart.causes`
        outcome exit_code rank node error            of its verdict
        next reason    who brings the run back (requeue, slurm, submit; null: it ended), and why so
        by             who gave the verdict, where the attempt itself could not: next attempt, tend
        hang           null, or rank, node, step, seconds of the lookout's finding
        base last_step steps_done steps_lost durable
        restored_from  the tier of the checkpoint that it went on from
        queue_seconds restart_seconds
        restart        the parts of the restart: shell, check, rendezvous, setup, restore, first step
    events             what happened beside that, oldest first: `time`, `event`, `attempt` (the latest then), `text`
    totals             attempts causes wall_seconds run_seconds queue_seconds restart_seconds restore_seconds last_step
                       steps_done steps_lost steps_per_attempt node_hours node_hours_lost gpu_hours gpu_hours_lost
                       efficiency
"""

from __future__ import annotations

import argparse
import json

from slurmopt.runs import options
from slurmopt.runs.find import find
from slurmopt.runs.history.story import as_dict, history
from slurmopt.runs.history.view import page


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    given = parser().parse_args(argv)
    found = history(find(given.run, given.folder))
    if given.json:
        print(json.dumps(as_dict(found), allow_nan=False))
    else:
        print(page(found))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt history`."""
    made = options.parser("history", "The story of a run: its attempts, why each ended, what that cost.")
    options.add_run(made)
    options.add_json(made)
    return made
