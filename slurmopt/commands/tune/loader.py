"""`slurmopt tune loader`: how many workers the DataLoader of an experiment needs.

It launches a sweep with `sweep.search=loader` and waits for it. In the first trial the training makes each batch
itself, which tells what a batch costs and how long a step takes; the number of workers follows from that, and further
trials confirm it. Each trial is a process of its own on the resources of the experiment, with real steps of its
training.

`--json` prints one object:

    name id folder key
    trials      a list of workers, rate (samples a second, tokens where the training tells them), step (seconds of a
                step without the wait for input), wait (seconds of that in a step), service (seconds that the batches of
                a step take the processes that make them), computed (seconds of that in which a CPU is used), cpus (of a
                rank), error
    best        the smallest number of workers whose rate is within 3 % of the best one; null where no trial ran
    gain        by which its rate is better than without workers: 0.5 is half as much again
    cold        the number of workers for samples that are not in the page cache, where the trials show a difference
    overrides   what to launch with: a list of KEY=VALUE
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from slurmopt import command_output
from slurmopt.commands.tune.search import add_options, check, earlier, launched, value_of
from slurmopt.config.sweep import LOADER
from slurmopt.errors import InputError, one_line
from slurmopt.grid.search.loader_workers import FAST, Answer, Trial, answer
from slurmopt.option_parser import OptionParser
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.sweeps.results import tuned

_MOST = 32
_NOTABLE = 0.1
"""A wait below this part of the step is not worth advice: a batch has to come from the worker, too."""
_WAITS, _COMPUTES = 0.5, 0.8
"""Parts of the time in which a batch is made: below the one it mostly waits, above the other it mostly computes."""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status: 1 where no trial ran."""
    args = parser().parse_intermixed_args(argv)
    _check(args)
    if args.json:
        command_output.expect_json()
    sweep = _launched(args) if args.read is None else earlier(args.read, "a search for a number of workers")
    if sweep is None:
        return 130
    trials = tuned.workers(sweep)
    found = answer(trials)
    key = tuned.key_of(sweep, LOADER)
    if args.json:
        command_output.print_json(_as_json(sweep, key, trials, found))
    else:
        print("\n".join(_lines(sweep, key, trials, found, [] if args.read else args.overrides)))
    if found is None:
        why = f", failed: {one_line(trials[0].error or '')}" if trials else ""
        command_output.fail(f"tune loader: no trial has ended well{why}", "RunError")
    return 0 if found is not None else 1


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt tune loader`."""
    parser = OptionParser(
        "slurmopt tune loader",
        usage="slurmopt tune loader [OPTIONS] +experiment=NAME [KEY=VALUE ...]",
        description="Compute and confirm how many workers the DataLoader of an experiment needs.",
    )
    parser.add_argument("--key", default="num_workers", help="the key of the number (default: num_workers)")
    parser.add_argument("--most", type=int, default=_MOST, metavar="N", help=f"no more than these (default: {_MOST})")
    add_options(parser, steps=100)
    return parser


def _check(args: argparse.Namespace) -> None:
    check(args, "tune loader", least_steps=8)
    if args.most < 1:
        raise InputError(f"tune loader: --most {args.most} is not valid; valid: 1 or more")


def _launched(args: argparse.Namespace) -> SweepFolder | None:
    def axis(config: Mapping[str, Any]) -> str:
        value = value_of(config, args.key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            what = "is not there" if value is None else f"is {value!r}"
            raise InputError(
                f"tune loader: {args.key} {what} in the config; valid: --key with the key of the number of workers "
                "that the training gives to its DataLoader"
            )
        return f"{args.key}=range(0,{args.most + 1})"

    return launched(args, LOADER, axis)


def _lines(sweep: SweepFolder, key: str, trials: list[Trial], found: Answer | None, words: list[str]) -> list[str]:
    lines = [f"{sweep.name}/{sweep.id}: {key}"]
    if trials:
        header = ["WORKERS", "PER SECOND", "STEP", "WAIT", "A BATCH TAKES", ""]
        lines.append(table(header, [_row(trial) for trial in trials], terminal_width()))
    if found is None:
        return lines
    gain = "" if found.gain is None else f"; {found.gain:+.0%} beside none"
    lines.append(f"best      {found.best.workers}: the smallest number with {FAST:.0%} of the best rate or more{gain}")
    if found.cold is not None and found.cold != found.best.workers:
        lines.append(f"cold      {found.cold}: as long as the samples are not in the page cache")
    lines += [f"advice    {line}" for line in _advice(trials, found)]
    lines.append(f"next      {shlex.join(['slurmopt', 'launch', *words, *_overrides(key, found)])}")
    return lines


def _row(trial: Trial) -> list[str]:
    rate = "" if trial.rate is None else f"{trial.rate:,.4g}"
    times = [_time(value) for value in (trial.step, trial.wait, trial.service)]
    return [str(trial.workers), rate, *times, one_line(trial.error or "")]


def _time(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3g} ms"


def _advice(trials: list[Trial], found: Answer) -> list[str]:
    """What else would help."""
    first = trials[0]
    if first.service is None or first.computed is None:
        return ["use slurmopt.training.loader: without it nothing tells what a batch costs"]
    best = found.best
    if not best.wait or not best.step or best.wait < _NOTABLE * best.step:
        return []
    part = first.computed / first.service if first.service else 0.0
    if part >= _COMPUTES:
        return [
            f"the step still waits for input, and making a batch computes {part:.0%} of the time: more CPUs for the "
            "rank (resources.cpus_per_task), or samples that are decoded and stored beforehand"
        ]
    if part <= _WAITS:
        return [
            f"the step still waits for input, and making a batch waits {1 - part:.0%} of the time, mostly for storage: "
            "larger files, or a copy on the node (storage.stage)"
        ]
    return ["the step still waits for input: making a batch both computes and waits for storage"]


def _overrides(key: str, found: Answer | None) -> list[str]:
    return [] if found is None else [f"{key}={found.best.workers}"]


def _as_json(sweep: SweepFolder, key: str, trials: list[Trial], found: Answer | None) -> dict[str, Any]:
    return {
        "name": sweep.name,
        "id": sweep.id,
        "folder": str(sweep.path),
        "key": key,
        "trials": [asdict(trial) for trial in trials],
        "best": None if found is None else found.best.workers,
        "gain": None if found is None else found.gain,
        "cold": None if found is None else found.cold,
        "overrides": _overrides(key, found),
    }
