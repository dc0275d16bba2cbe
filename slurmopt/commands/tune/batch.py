"""`slurmopt tune batch`: tries batch sizes of an experiment, and says which one is the largest that fits into memory,
and which one is the smallest that is fast.

It launches a sweep with `sweep.search=batch_size` and waits for it. Each trial is a process of its own on the resources
of the experiment, with real steps of its training, of which the first quarter is not measured.

`--json` prints one object:

    name id folder key
    trials      a list of size, rate (samples a second, tokens where the training tells them), memory and limit (bytes
                of a rank), fits (it ran and left the margin), error
    margin      the part of the memory that must stay free
    largest     the largest size that fits; null where none does
    best        the smallest size whose rate is within 5 % of the best one; null where none fits
    bytes_per_unit  the memory that each unit of the batch takes near the largest size; null where it is not known
    overrides   what to launch with: a list of KEY=VALUE
    state       running, stopped (it was ended before it had an answer) or ended
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurmopt import command_output
from slurmopt.commands.tune.search import add_options, check, earlier, launched, next_launch, unanswered
from slurmopt.config.dotted import value_of
from slurmopt.config.sweep import BATCH_SIZE
from slurmopt.errors import InputError, one_line, why_failed
from slurmopt.grid.search.batch_size import FAST, MARGIN, Answer, Trial, answer, failed, rate_text
from slurmopt.option_parser import OptionParser
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.sweeps.results import tuned
from slurmopt.units import human_bytes

_DOWN, _UP = 8, 64
"""Without --sizes, from this part of the config's size to this multiple of it."""
_SIZES = re.compile(r"([1-9]\d*)-([1-9]\d*)")


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status: 1 where no size fits."""
    args = parser().parse_intermixed_args(argv)
    _check(args)
    if args.json:
        command_output.expect_json()
    sweep = _launched(args) if args.read is None else earlier(args.read, "a search for a batch size")
    made = tuned.sizes(sweep)
    trials, why = made.trials, unanswered(sweep, made.state)
    found = answer(trials) if why is None else None
    key = tuned.key_of(sweep, BATCH_SIZE)
    if args.plot is not None:
        _plot(sweep, key, trials, args.plot)
    if args.json:
        command_output.print_json({**_as_json(sweep, key, trials, found), "state": made.state})
    else:
        print("\n".join(_lines(sweep, key, trials, found)))
    if found is None:
        command_output.fail(f"tune batch: {why or _nothing_fits(sweep, key, trials)}", "RunError")
    return 0 if found is not None else 1


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt tune batch`."""
    parser = OptionParser(
        "slurmopt tune batch",
        usage="slurmopt tune batch [OPTIONS] +experiment=NAME [KEY=VALUE ...]",
        description="Try batch sizes of an experiment: the largest that fits, and the smallest that is fast.",
    )
    parser.add_argument("--key", default="batch_size", help="the key of the batch size (default: batch_size)")
    parser.add_argument("--sizes", metavar="LEAST-MOST", help="default: an eighth of the config's to 64 times it")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the curves as a page: a name in .html")
    add_options(parser, steps=20)
    return parser


def _check(args: argparse.Namespace) -> None:
    if args.plot is not None and args.plot.suffix.lower() != ".html":
        raise InputError(f"tune batch: --plot {str(args.plot)!r} is not valid; valid: a name that ends in .html")
    check(args, "tune batch", least_steps=2)
    if args.sizes is not None and _SIZES.fullmatch(args.sizes) is None:
        raise InputError(f"tune batch: --sizes {args.sizes!r} is not valid; valid: LEAST-MOST, such as 8-1024")


def _launched(args: argparse.Namespace) -> SweepFolder:
    def axes(config: Mapping[str, Any]) -> list[str]:
        least, most = _sizes(args, config)
        return [f"{args.key}=range({least},{most + 1},{least})"]

    return launched(args, BATCH_SIZE, axes)


def _sizes(args: argparse.Namespace, config: Mapping[str, Any]) -> tuple[int, int]:
    if args.sizes is not None:
        least, most = map(int, args.sizes.split("-"))
        if least > most:
            raise InputError(f"tune batch: --sizes {args.sizes}: the least comes first")
        return least, most
    size = value_of(config, args.key)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        what = "is not there" if size is None else f"is {size!r}"
        raise InputError(
            f"tune batch: {args.key} {what} in the config; valid: --key with the key of the batch size, a number"
        )
    return max(1, size // _DOWN), size * _UP


def _overrides(key: str, found: Answer | None) -> list[str]:
    return [] if found is None else [f"{key}={found.best.size}"]


def _nothing_fits(sweep: SweepFolder, key: str, trials: list[Trial]) -> str:
    key, label = one_line(key), f"{sweep.name}/{sweep.id}"
    if not trials:
        return f"no trial has ended; slurmopt status {label} tells more"
    if (other := failed(trials)) is not None:
        why = f"failed, and not for want of memory: {one_line(other.error or '')}"
        return f"the trial with {key}={other.size} {why}; slurmopt logs {label} --errors tells more"
    least = trials[0]
    if least.error is None:
        return f"the smallest size, {key}={least.size}, leaves less than {MARGIN:.0%} of the memory"
    return f"the smallest size, {key}={least.size}, failed: {one_line(least.error)}"


def _lines(sweep: SweepFolder, key: str, trials: list[Trial], found: Answer | None) -> list[str]:
    lines = [f"{sweep.name}/{sweep.id}: {one_line(key)}"]
    if trials:
        rows = [_row(trial) for trial in trials]
        lines.append(table(["SIZE", "PER SECOND", "PEAK MEMORY", ""], rows, terminal_width()))
    if found is None:
        return lines
    share = (found.best.rate or 0.0) / max(trial.rate or 0.0 for trial in trials)
    lines += [
        f"largest   {_largest(found.largest, trials)}",
        f"best      {found.best.size:,}: {share:.0%} of the best rate; the smallest size with {FAST:.0%} or more",
        next_launch(sweep, _overrides(key, found)),
    ]
    return lines


def _largest(largest: Trial, trials: list[Trial]) -> str:
    text = f"{largest.size:,}"
    if largest.memory is not None and largest.limit is not None:
        text += f": {human_bytes(largest.memory)} of {human_bytes(largest.limit)}; {MARGIN:.0%} must stay free"
    return text if largest is not trials[-1] else f"{text}; a larger one was not asked for (--sizes)"


def _row(trial: Trial) -> list[str]:
    memory = "" if trial.memory is None else human_bytes(trial.memory)
    why = one_line(trial.error) if trial.error is not None else "" if trial.fits else "leaves too little memory"
    return [f"{trial.size:,}", rate_text(trial), memory, why]


def _as_json(sweep: SweepFolder, key: str, trials: list[Trial], found: Answer | None) -> dict[str, Any]:
    names = ("size", "rate", "memory", "limit", "fits", "error")
    return {
        "name": sweep.name,
        "id": sweep.id,
        "folder": str(sweep.path),
        "key": key,
        "trials": [{name: getattr(trial, name) for name in names} for trial in trials],
        "margin": MARGIN,
        "largest": None if found is None else found.largest.size,
        "best": None if found is None else found.best.size,
        "bytes_per_unit": None if found is None else found.per_unit,
        "overrides": _overrides(key, found),
    }


def _plot(sweep: SweepFolder, key: str, trials: list[Trial], path: Path) -> None:
    from slurmopt.report import batch_size_page

    try:
        batch_size_page.write(f"{sweep.name}/{sweep.id}", key, trials, path.absolute())
    except OSError as error:
        raise InputError(f"tune batch: --plot {one_line(str(path))}: {why_failed(error)}") from error
    print(f"slurmopt: written: {one_line(str(path))}", file=sys.stderr)
