"""The arguments that the job script passes to the parent of a pack."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from slurmopt.grid.point_ranges import Ranges
from slurmopt.job.facts.rank_facts import slurm_job
from slurmopt.job.rank_args import RankArgs, parse
from slurmopt.restart.policy import Policy, from_word
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder


@dataclass(frozen=True, kw_only=True)
class Pack:
    """What one array task is to run."""

    sweep: SweepFolder
    submission: int
    task: int
    points: Ranges
    """The points of this array task; for a search, whose array tasks share the points, all of them."""
    shared: bool
    """Whether all array tasks of the submission share `points`."""
    side_by_side: int
    """The number of points that run at the same time."""
    ranks: int
    """Ranks of each point."""
    policy: Policy
    srun: list[str]
    """The options of srun for the job step of each point, on all nodes; none where its ranks run on this node."""
    memory: int | None
    """Bytes that one point may use; None for no limit."""
    deadline: float
    """Seconds that a save may take (checkpoint.deadline), for the hang detection."""
    job: str
    """The id of the array task in Slurm: A_a."""
    nodes: str
    call: RankArgs
    """What the parent itself, the one rank of tasks/S-T, was told."""
    words: list[str]
    """What each rank of a point is told beside its folder."""

    @property
    def folder(self) -> RunFolder:
        """The folder of the array task, as that of a run."""
        return self.call.folder

    @property
    def name(self) -> str:
        return f"{self.submission}-{self.task}"


def read(argv: list[str], environ: Mapping[str, str] = os.environ) -> Pack:
    """Parses the arguments. A misspelt one ends the process with status 2 and the valid ones on standard error."""
    at = argv.index("--") if "--" in argv else len(argv)
    options, rest = _parser().parse_known_args(argv[:at])
    words = [*rest, *argv[at:]]
    sweep = SweepFolder(Path(options.sweep).absolute())
    task = int(environ.get("SLURM_ARRAY_TASK_ID") or 0)
    call = parse([str(sweep.task(options.submission, task).path), *words])
    if options.srun:  # each rank of a point does that on its own node
        call = replace(call, health=None, stage=None, monitor=None)
    points: Ranges = options.points
    if not options.search:
        points = points.slice(task * options.per_task, (task + 1) * options.per_task)
    return Pack(
        sweep=sweep,
        submission=options.submission,
        task=task,
        points=points,
        shared=options.search,
        side_by_side=options.side_by_side,
        ranks=options.ranks,
        policy=options.policy,
        srun=options.srun,
        memory=options.memory,
        deadline=options.deadline,
        job=slurm_job(environ) or f"local-{os.getppid()}",
        nodes=environ.get("SLURM_JOB_NODELIST") or os.uname().nodename,
        call=call,
        words=words,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m slurmopt.job.pack", allow_abbrev=False, epilog="All other options are passed to the ranks."
    )
    parser.add_argument("sweep", help="the sweep's folder")
    parser.add_argument("submission", type=int)
    parser.add_argument("points", type=Ranges.parse, help="the points of the submission, such as 0-999")
    parser.add_argument("per_task", type=_positive)
    parser.add_argument("--side-by-side", type=_positive, default=1, help="number of points that run at the same time")
    parser.add_argument("--ranks", type=_positive, default=1, help="ranks of each point")
    parser.add_argument("--policy", type=from_word, default=Policy(), metavar="JSON", help="the restart policy")
    parser.add_argument("--srun", action="append", default=[], metavar="OPTION", help="each point is a step of srun's")
    parser.add_argument("--memory", type=_positive, metavar="BYTES", help="memory limit of each point")
    parser.add_argument("--deadline", type=float, default=0.0, help="timeout of a save in seconds")
    parser.add_argument("--search", action="store_true", help="the array tasks share all points")
    return parser


def _positive(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number above 0")
    return int(word)
