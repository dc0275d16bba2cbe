"""`slurmopt plan size NAME`: what the runs of that name need, beside what they ask for.

`--json` prints one object; with `--all` one with `names`, a list of such objects, the most wasteful first, and
`problems`, a line for each name that cannot be told:

    name runs finished      the runs that were looked at, and how many of them finished
    needs       a list of key (of the config), asked (null: the default of the site), used, enough, override; `used` is
                the 90 % quantile of the time in seconds (null where it cannot be told), the largest peak of a node's
                memory in bytes, the 90 % quantile of its busy cores, or its GPUs that were busy at any time in any run
    unknown     a list of texts: what cannot be told, and why
    wasted      hours of nodes, cores, GiB or GPUs: a list of key, amount and unit
    gpus        each (on a node), busy (at any time in any run), mean (utilisation, 0 to 1), high (what it does not
                exceed for nine tenths of the time); null without GPUs or where it was not measured
    checked     what became of the newest run that asked for less than an earlier one: a list of key, run, asked,
                before, used (null where it was not measured), enough (null where the run does not tell)
"""

from __future__ import annotations

import argparse

from slurmopt import command_output
from slurmopt.commands.plan.size.needs import GPUS_KEY, MEMORY_KEY, TIME_KEY, UNITS, Sizing, waste_order
from slurmopt.commands.plan.size.runs import of_name, of_user
from slurmopt.errors import InputError, RunError, one_line
from slurmopt.planning.right_size_check import Check
from slurmopt.runs import options
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.slow_notice import slow_notice
from slurmopt.units import human_bytes, human_seconds


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    if (args.name is None) is not args.all:
        what = "NAME and --all exclude each other" if args.all else "needs NAME, a sweep, or --all"
        raise InputError(f"plan size: {what}; valid: slurmopt plan size NAME")
    return _all(args) if args.all else _one(args)


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt plan size`."""
    from slurmopt.option_parser import OptionParser

    parser = OptionParser("slurmopt plan size", description="What the runs of a name need, beside what they ask for.")
    help_text = "the name of runs, as launch.name or the experiment's; or a sweep, for its points"
    parser.add_argument("name", nargs="?", metavar="NAME|SWEEP", help=help_text)
    parser.add_argument("--all", action="store_true", help="a line for each name of your runs, the most wasteful first")
    options.add_json(parser)
    return parser


def _one(args: argparse.Namespace) -> int:
    with slow_notice("reading what the runs have used"):
        sizing = of_name(args.name, options.default_folder())
    if args.json:
        command_output.print_json(sizing.as_json())
    else:
        print("\n".join(_lines(sizing)))
    return 0


def _all(args: argparse.Namespace) -> int:
    with slow_notice("reading what your runs have used"):
        found, problems = of_user(options.default_folder())
    if not found and not problems:
        raise RunError("no runs of yours here; slurmopt list --everywhere shows those in your other folders")
    found.sort(key=waste_order)
    if args.json:
        command_output.print_json({"names": [each.as_json() for each in found], "problems": problems})
    else:
        print("\n".join(_all_lines(found, problems)))
    return 0


def _all_lines(found: list[Sizing], problems: list[str]) -> list[str]:
    rows = []
    for each in found:
        wasted = {one["unit"]: f"{one['amount']:,.1f}" for one in each.wasted}
        amounts = [wasted.get(unit, "") for unit in UNITS.values()]
        rows.append([one_line(each.name), str(len(each.used)), str(each.finished), *amounts, " ".join(each.overrides)])
    header = ["NAME", "RUNS", "FINISHED", *(unit.upper() for unit in UNITS.values()), ""]
    lines = [table(header, rows, terminal_width())] if rows else []
    lines += [f"unknown   {text}" for text in problems]
    if found and found[0].wasted:
        lines.append(f"next      slurmopt plan size {one_line(found[0].name)}")
    return lines


def _lines(sizing: Sizing) -> list[str]:
    needs = sizing.needs
    lines = [f"{one_line(sizing.name)}: {len(sizing.used)} runs, {sizing.finished} of them finished"]
    if needs:
        rows = [
            [need.key, _text(need.key, need.asked) or "default", _text(need.key, need.used) or "more",
             _text(need.key, need.enough), need.override or "is right"]
            for need in needs
        ]  # fmt: skip
        lines.append(table(["KEY", "ASKED", "USED", "ENOUGH", ""], rows, terminal_width()))
    lines += [f"unknown   {text}" for text in sizing.unknown]
    if (gpus := sizing.gpus) is not None:
        lines.append(
            f"gpus      {gpus.busy} of {gpus.each} of a node were busy at some time; utilisation {gpus.mean:.0%} in "
            f"the mean, up to {gpus.high:.0%} for nine tenths of the time; a low mean is no reason to ask for fewer"
        )
    lines += [f"wasted    {each['amount']:,.1f} {each['unit']}" for each in sizing.wasted]
    lines += [f"checked   {_check_text(key, one)}" for key, one in sizing.checked.items()]
    if sizing.overrides:
        lines.append(f"next      slurmopt launch … {' '.join(sizing.overrides)}")
    return lines


def _check_text(key: str, one: Check) -> str:
    trial = one.trial
    said = {True: "enough", False: "not enough", None: "it does not tell whether that is enough"}[trial.had_enough]
    how = "an attempt ended for want of it" if trial.was_short else "it finished" if trial.finished else "not finished"
    if trial.used is not None:
        how += f", and used {_text(key, trial.used)}"
    less = f"{_text(key, trial.asked)} instead of {_text(key, one.before)}"
    return f"{key}: {one_line(trial.label)} asked for {less}: {said}; {how}"


def _text(key: str, value: float | None) -> str:
    if value is None:
        return ""
    if key == TIME_KEY:
        return human_seconds(value)
    if key == GPUS_KEY:
        return f"{value:.0f} GPU{'' if value == 1 else 's'}"
    return human_bytes(value) if key == MEMORY_KEY else f"{value:.3g} cores"
