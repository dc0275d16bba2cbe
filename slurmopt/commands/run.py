"""`slurmopt run -G 1 -t 4h -- python train.py`: a run without a config, with options that mean what sbatch's mean.

It becomes the same overrides, plan and run folder as a launch; `--json` prints what `slurmopt launch --json` prints.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from slurmopt.errors import InputError
from slurmopt.launching.launch_flags import HelpFormatter, add_launch_options, as_overrides
from slurmopt.option_parser import OptionParser

if TYPE_CHECKING:
    from slurmopt.runs.submit.plan import Plan

_GPUS = re.compile(r"(?:(?P<type>[A-Za-z][\w.-]*):)?(?P<count>[1-9]\d{0,5})")
_EXAMPLES = """
  slurmopt run -G 1 -t 4h -- python train.py --lr 0.1
  slurmopt run -N 2 -G 16 -- torchrun train.py
  slurmopt run -G 1 --array lr=1e-4,3e-4 -- python train.py --lr {lr}"""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args, unknown = parser().parse_known_args(argv)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if unknown:
        raise InputError(_about_option(unknown[0], command))
    _check(command)
    from slurmopt.launching import execute

    with contextlib.redirect_stdout(sys.stderr):  # the user's modules and resolvers may print
        planned = _plan(args, command)
    return execute.launch(planned)


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt run`."""
    parser = OptionParser(
        "slurmopt run",
        usage="slurmopt run [OPTIONS] -- COMMAND",
        description="Run a command on the cluster, without a config. Once for each GPU; torchrun once for each node.",
        formatter_class=HelpFormatter,
        epilog=_EXAMPLES,
    )
    job = parser.add_argument_group("the job, as for sbatch")
    job.add_argument("-N", "--nodes", metavar="N", help="nodes, or a range such as 2-4")
    gpus = job.add_mutually_exclusive_group()
    gpus.add_argument("-G", "--gpus", type=_gpus, metavar="[TYPE:]N", help="GPUs of all nodes together")
    gpus.add_argument("--gpus-per-node", type=_gpus, metavar="[TYPE:]N", help="GPUs on each node")
    ranks = job.add_mutually_exclusive_group()
    ranks.add_argument("-n", "--ntasks", type=int, metavar="N", help="ranks of all nodes together")
    ranks.add_argument("--ntasks-per-node", type=int, metavar="N", help="ranks on each node (default: one per GPU)")
    job.add_argument("-c", "--cpus-per-task", type=int, metavar="N", help="CPUs of each rank")
    job.add_argument("--mem", metavar="SIZE", help="memory of each node, such as 80G")
    job.add_argument("-t", "--time", metavar="TIME", help="time limit: 90m, 4h, 1d 12h, HH:MM:SS")
    job.add_argument("-p", "--partition", metavar="NAME", help="partition, or several separated by commas")
    job.add_argument("-A", "--account", metavar="NAME", help="the account that is charged")
    job.add_argument("-q", "--qos", metavar="NAME", help="quality of service")
    job.add_argument("--exclusive", action="store_true", help="share the nodes with no other job")
    job.add_argument("--array", action="append", default=[], metavar="KEY=VALUES", help="a sweep: {KEY} in the command")
    _add_hidden(job)
    run = parser.add_argument_group("the run")
    add_launch_options(run)
    run.add_argument("--cluster", metavar="NAME", help="the profile of your site in conf/cluster/")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any key of the config")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help=argparse.SUPPRESS)
    return parser


def _add_hidden(job: argparse._ArgumentGroup) -> None:
    """The rarer options of sbatch."""
    hidden = argparse.SUPPRESS
    job.add_argument("-J", "--job-name", dest="name", help=hidden)
    for names in (("-C", "--constraint"), ("-w", "--nodelist"), ("-x", "--exclude"), ("--reservation",)):
        job.add_argument(*names, help=hidden)
    for name in ("--mem-per-cpu", "--mem-per-gpu"):
        job.add_argument(name, help=hidden)


def _gpus(text: str) -> tuple[str | None, int]:
    match = _GPUS.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid; valid: a number such as 8, or h100:8")
    return match["type"], int(match["count"])


def _about_option(word: str, command: list[str]) -> str:
    after = f" -- {shlex.join(command)}" if command else " -- COMMAND"
    return f"run: {word}: unknown option; options of the command go behind it: slurmopt run [OPTIONS]{after}"


def _check(command: list[str]) -> None:
    """Raises InputError for a command that is missing, quoted as a whole, or a batch script."""
    if not command or not command[0].strip():
        raise InputError("run: no command; valid: slurmopt run -G 1 -- python train.py")
    if len(command) == 1 and len(words := _split(command[0])) > 1 and not Path(command[0]).exists():
        raise InputError(f"run: the command is one word, {command[0]!r}; leave out its quotes: {shlex.join(words)}")
    from slurmopt.launching.meant_override import is_batch_script

    script = command[-1] if len(command) == 1 or command[0] in ("bash", "sh") else command[0]
    if is_batch_script(script):
        raise InputError(
            f"run: the #SBATCH lines of {script!r} would not count; make an experiment of it: "
            f"slurmopt import {shlex.quote(script)}"
        )


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _plan(args: argparse.Namespace, command: list[str]) -> Plan:
    """The plan of the launch; its nodes are those that `--gpus` needs where `--nodes` is not given."""
    plan = _planned(args, command, args.nodes)
    if args.nodes is None and args.gpus and plan.backend != "local":
        from slurmopt.launching.gpu_spread import fewest_nodes

        nodes = fewest_nodes(plan.job.settings.resources)
        if nodes > 1:
            each = args.gpus[1] // nodes
            print(f"slurmopt: {args.gpus[1]} GPUs: {nodes} nodes with {each} each; -N chooses", file=sys.stderr)
            return _planned(args, command, nodes)
    return plan


def _planned(args: argparse.Namespace, command: list[str], nodes: int | str | None) -> Plan:
    from slurmopt.launching import run_plan, sweep_plan
    from slurmopt.launching.run_command import overrides_of

    overrides = [*overrides_of(args, command, nodes), *as_overrides(args)]
    return sweep_plan.plan_sweep(overrides) if args.array else run_plan.plan(overrides)
