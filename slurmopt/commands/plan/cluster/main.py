"""`slurmopt plan cluster +experiment=NAME`: the same training on several clusters, one row each.

Of each cluster the best number of nodes is shown, by the rule of `slurmopt plan`. `--json` prints one object; intervals
are lists of two ends, times are seconds, rates bytes per second one way:

    model       name, parameters
    work        sequence, global_batch, precision, optimizer
    clusters    one for each cluster: a list of
        name size profile instance gpu
        cluster_nodes cluster_gpus   all that it has
        network     kind, gbits: of a node
        topology    kind, tiers, oversubscription
        storage     kind, write: of all nodes together, capacity: bytes, null where it is not known
        nvme        bytes of a node's disks; null without any
        bisection   of all of its nodes
        network_of_gpu   of each GPU while all communicate
        why_not     why the training cannot be there; then all below is null
        nodes gpus data tensor pipeline strategy micro_batch recompute   of the shape to take there
        fits        the probability that its peak is within the GPU's memory
        step        of a step
        tokens_per_second
        bisection_of_nodes   of the nodes of the shape
        save        of a checkpoint: bytes, seconds, limit (network or file system); fits: whether the file system has
                    room for it
        run         of the whole training, with saves and restarts where the user's runs tell of failures; null without
                    plan.tokens
        gpu_hours   kwh   of the whole training; null without plan.tokens
        money       amount (an interval), currency, date, source; null where no price is known, or without plan.tokens
        no_price    why there is no money; null where there is, or nothing to pay for is known
        front       whether no other cluster is better in both time and money
        overrides   what the shape is launched with, beside the profile: a list of KEY=VALUE
        sources     section → where its numbers stand
        assumed     the keys that no source has
    chosen      the name of the cluster to take; null where the training fits on none
    why         in words
    launch      the words of a launch there: a list; null where no profile goes with it
    notes       what was assumed
"""

from __future__ import annotations

import argparse
import contextlib
import sys

from slurmopt import command_output
from slurmopt.commands.plan.cluster.answer import Answer, row
from slurmopt.commands.plan.cluster.launch import launch_on
from slurmopt.commands.plan.cluster.text import lines
from slurmopt.errors import InputError
from slurmopt.estimates.cluster_file import selected
from slurmopt.estimates.failures import history
from slurmopt.estimates.on_clusters import fitted, on, workload
from slurmopt.estimates.past_runs import learned, scored_runs
from slurmopt.option_parser import OptionParser
from slurmopt.runs import options
from slurmopt.slow_notice import slow_notice


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status: 1 where the training fits on no cluster."""
    args = parser().parse_intermixed_args(argv)
    if not args.overrides:
        raise InputError("plan cluster: no experiment; valid: slurmopt plan cluster +experiment=NAME")
    if args.json:
        command_output.expect_json()
    with contextlib.redirect_stdout(sys.stderr):  # standard output is for the answer
        answer = _answer(args)
    if args.json:
        command_output.print_json(answer.as_json())
    else:
        print("\n".join(lines(answer)))
    if answer.taken is None:
        command_output.fail("plan cluster: the training fits on none of these clusters", "RunError")
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt plan cluster`."""
    parser = OptionParser(
        "slurmopt plan cluster",
        usage="slurmopt plan cluster [OPTIONS] +experiment=NAME [KEY=VALUE ...]",
        description="Compare clusters for a training: whether it fits, how long it takes, what it costs there.",
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for slurmopt launch")
    parser.add_argument("--clusters", metavar="FILE", help="your own clusters (default: those that ship)")
    parser.add_argument("--only", metavar="NAME,NAME", help="these clusters alone, of FILE and of those that ship")
    parser.add_argument("--config-dir", metavar="DIR", help="the folder of your configs (default: conf)")
    options.add_json(parser)
    return parser


def _answer(args: argparse.Namespace) -> Answer:
    from slurmopt.launching import run_plan

    presets = selected(args.clusters, args.only)
    planned = run_plan.plan(args.overrides, args.config_dir)
    settings = planned.job.settings
    asked = workload(settings.plan, settings.resources, planned.stored, presets[0])
    with slow_notice("reading what earlier runs have measured"):
        earlier, failed = scored_runs(options.default_folder()), history(options.default_folder())
    rows = []
    with slow_notice("computing the shapes of each cluster"):
        for preset in presets:
            there = on(asked, preset, settings.plan.nodes)
            rows.append(row(fitted(there, preset, learned(there, earlier)), failed.rate))
    answer = Answer(asked=asked, rows=rows, failed=failed, launch=None)
    if (taken := answer.taken) is None:
        return answer
    return answer.launched_by(launch_on(taken.on, args.overrides, args.config_dir))
