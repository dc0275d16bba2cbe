"""`slurmopt tune loader`: how many workers the DataLoader of an experiment needs, and with which settings.

It launches a sweep with `sweep.search=loader` and waits for it. In the first trial the training makes each batch
itself, which tells what a batch costs and how long a step takes; the number of workers follows from that, and further
trials confirm it. Then larger prefetch factors are tried if the step still waits, and on a GPU pinned memory where the
config has none, or the other way round; both only where the config has their keys. Each trial is a process of its own
on the resources of the experiment, with real steps of its training.

`--json` prints one object:

    name id folder key
    trials      a list of workers, prefetch (the prefetch factor; null is torch's own), pinned, rate (samples a second,
                tokens where the training tells them), step (seconds of a step without the wait for input), wait
                (seconds of that in a step), service (seconds that the batches of a step take the processes that make
                them), computed (seconds of that in which a CPU is used), cpus (of a rank), gpu (whether it uses one),
                error
    best        the smallest number of workers whose rate is within 3 % of the best one; null where no trial ran
    gain        by which the rate of the answer is better than without workers: 0.5 is half as much again
    prefetch    the smallest prefetch factor whose rate is within 3 % of the best one; null is torch's own
    pinned      whether memory is to be pinned; null where that was not tried
    prefetch_gain   by which the best larger prefetch factor is better than torch's own; null where none was tried
    pin_gain    by which pinned memory is better than memory that is not; null where that was not tried
    cold        the number of workers for samples that are not in the page cache, where the trials show a difference
    overrides   what to launch with: a list of KEY=VALUE
    state       running, stopped (it was ended before it had an answer) or ended
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from itertools import compress
from types import NoneType
from typing import Any

from slurmopt import command_output
from slurmopt.commands.tune.search import add_options, check, earlier, launched, next_launch, unanswered
from slurmopt.config.dotted import has, value_of
from slurmopt.config.sweep import LOADER
from slurmopt.errors import InputError, one_line
from slurmopt.grid.search.loader_settings import FAST, PREFETCH, Answer, Trial, answer
from slurmopt.option_parser import OptionParser
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.sweeps.results import tuned
from slurmopt.sweeps.results.tuned import LoaderKeys

_MOST = 32
_PREFETCH, _PINNED = "prefetch_factor", "pin_memory"
_FACTORS = (4, 8)
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
    made = tuned.loaders(sweep)
    trials, why = made.trials, unanswered(sweep, made.state)
    found = answer(trials) if why is None else None
    keys = tuned.loader_keys(sweep)
    if args.json:
        command_output.print_json({**_as_json(sweep, keys, trials, found), "state": made.state})
    else:
        print("\n".join(_lines(sweep, keys, trials, found)))
    if found is None:
        reason = f": {one_line(trials[0].error or '')}" if trials else ""
        command_output.fail(f"tune loader: {why or f'no trial was measured{reason}'}", "RunError")
    return 0 if found is not None else 1


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt tune loader`."""
    parser = OptionParser(
        "slurmopt tune loader",
        usage="slurmopt tune loader [OPTIONS] +experiment=NAME [KEY=VALUE ...]",
        description="Compute and confirm how many workers the DataLoader of an experiment needs.",
    )
    parser.add_argument("--key", default="num_workers", help="the key of the number (default: num_workers)")
    parser.add_argument(
        "--prefetch-key", metavar="KEY", help=f"the key of the prefetch factor (default: {_PREFETCH}, if it is there)"
    )
    parser.add_argument(
        "--pin-key", metavar="KEY", help=f"the key of whether memory is pinned (default: {_PINNED}, if it is there)"
    )
    parser.add_argument("--most", type=int, default=_MOST, metavar="N", help=f"no more than these (default: {_MOST})")
    add_options(parser, steps=100)
    return parser


def _check(args: argparse.Namespace) -> None:
    check(args, "tune loader", least_steps=8)
    if args.most < 1:
        raise InputError(f"tune loader: --most {args.most} is not valid; valid: 1 or more")


def _launched(args: argparse.Namespace) -> SweepFolder:
    def axes(config: Mapping[str, Any]) -> list[str]:
        value = value_of(config, args.key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            what = "is not there" if value is None else f"is {value!r}"
            raise InputError(
                f"tune loader: {args.key} {what} in the config; valid: --key with the key of the number of workers "
                "that the training gives to its DataLoader"
            )
        found = [f"{args.key}=range(0,{args.most + 1})"]
        if (key := _further(config, args.prefetch_key, "--prefetch-key", _PREFETCH, (int, NoneType))) is not None:
            found.append(f"{key}=null,{','.join(map(str, _FACTORS))}")
        if (key := _further(config, args.pin_key, "--pin-key", _PINNED, (bool, NoneType))) is not None:
            found.append(f"{key}=false,true" if value_of(config, key) is False else f"{key}=true,false")
        return found

    return launched(args, LOADER, axes)


def _further(
    config: Mapping[str, Any], key: str | None, option: str, default: str, kinds: tuple[type, ...]
) -> str | None:
    """The key if it is in the config; None where it is the default and is not there. Raises InputError."""
    name = key or default
    if not has(config, name):
        if key is None:
            return None
        raise InputError(f"tune loader: {option}: {one_line(name)} is not there in the config")
    if type(value := value_of(config, name)) not in kinds:
        what = "true or false" if bool in kinds else "a number or null"
        raise InputError(f"tune loader: {option}: {one_line(name)} is {value!r} in the config; valid: {what}")
    return name


def _lines(sweep: SweepFolder, keys: LoaderKeys, trials: list[Trial], found: Answer | None) -> list[str]:
    lines = [f"{sweep.name}/{sweep.id}: {one_line(keys.workers)}"]
    if trials:
        header = ["WORKERS", "PREFETCH", "PINNED", "PER SECOND", "STEP", "WAIT", "A BATCH TAKES", ""]
        kept = [True, keys.prefetch is not None, keys.pinned is not None, *[True] * 5]
        rows = [[*compress(row, kept)] for row in (header, *map(_row, trials))]
        lines.append(table(rows[0], rows[1:], terminal_width()))
    if found is None:
        return lines
    gain = "" if found.gain is None else f"; {found.gain:+.0%} beside none"
    if found.best.workers == keys.most and _still_waits(found.best):
        gain += "; more were not asked for (--most)"
    lines.append(f"best      {found.best.workers}: the smallest number with {FAST:.0%} of the best rate or more{gain}")
    if found.prefetch_gain is not None:
        factor = found.best.prefetch or f"{PREFETCH}, torch's own"
        lines.append(f"prefetch  {factor}; a larger one: {found.prefetch_gain:+.0%} beside {PREFETCH}")
    if found.pin_gain is not None:
        pinned = "pinned" if found.best.pinned else "not pinned"
        lines.append(f"memory    {pinned}; pinned memory: {found.pin_gain:+.0%} beside memory that is not")
    if found.cold is not None and found.cold != found.best.workers:
        lines.append(f"cold      {found.cold}: as long as the samples are not in the page cache")
    lines += [f"advice    {line}" for line in _advice(trials, found)]
    lines.append(next_launch(sweep, _overrides(keys, found)))
    return lines


def _row(trial: Trial) -> list[str]:
    rate = "" if trial.rate is None else f"{trial.rate:,.4g}"
    times = [_time(value) for value in (trial.step, trial.wait, trial.service)]
    prefetch = str(trial.prefetch or PREFETCH) if trial.workers else ""
    pinned = "yes" if trial.pinned else "no"
    return [str(trial.workers), prefetch, pinned, rate, *times, one_line(trial.error or "")]


def _time(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3g} ms"


def _advice(trials: list[Trial], found: Answer) -> list[str]:
    """What else would help."""
    first = trials[0]
    if first.service is None or first.computed is None:
        return ["use slurmopt.training.loader: without it nothing tells what a batch costs"]
    best = found.best
    if not _still_waits(best):
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


def _still_waits(trial: Trial) -> bool:
    return bool(trial.wait and trial.step and trial.wait >= _NOTABLE * trial.step)


def _overrides(keys: LoaderKeys, found: Answer | None) -> list[str]:
    """The settings of the best trial, as far as they have keys."""
    if found is None:
        return []
    words = [f"{keys.workers}={found.best.workers}"]
    if keys.prefetch is not None:
        words.append(f"{keys.prefetch}={'null' if found.best.prefetch is None else found.best.prefetch}")
    if keys.pinned is not None:
        words.append(f"{keys.pinned}={str(found.best.pinned).lower()}")
    return words


def _as_json(sweep: SweepFolder, keys: LoaderKeys, trials: list[Trial], found: Answer | None) -> dict[str, Any]:
    return {
        "name": sweep.name,
        "id": sweep.id,
        "folder": str(sweep.path),
        "key": keys.workers,
        "trials": [asdict(trial) for trial in trials],
        "best": None if found is None else found.best.workers,
        "prefetch": None if found is None else found.best.prefetch,
        "pinned": None if found is None or found.pin_gain is None else found.best.pinned,
        "gain": None if found is None else found.gain,
        "prefetch_gain": None if found is None else found.prefetch_gain,
        "pin_gain": None if found is None else found.pin_gain,
        "cold": None if found is None else found.cold,
        "overrides": _overrides(keys, found),
    }
