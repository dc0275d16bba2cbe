"""`slurmopt plan size NAME`: what the runs of that name need, beside what they ask for.

`--json` prints one object:

    name runs finished      the runs that were looked at, and how many of them finished
    needs       a list of key (of the config), asked (null: the default of the site), used, enough, override; `used` is
                the 90 % quantile of the time in seconds (null where it cannot be told), the largest peak of a node's
                memory in bytes, or the 90 % quantile of its busy cores
    unknown     a list of texts: what cannot be told, and why
    wasted      hours of nodes, cores or GiB, of the runs that finished: a list of key, amount and unit
"""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict, dataclass
from typing import Any

from slurmopt import command_output
from slurmopt.config.resources import Resources
from slurmopt.errors import RunError, SlurmoptError, one_line
from slurmopt.planning.right_size import (
    LEAST,
    Used,
    cores_needed,
    memory_needed,
    quantile,
    time_needed,
    time_quantile,
)
from slurmopt.report.run.build import report_on
from slurmopt.report.run.run_report import RunReport
from slurmopt.runs import options, stored_config
from slurmopt.runs.all_runs import created, runs_of_name
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.slow_notice import slow_notice
from slurmopt.units import human_bytes, human_seconds, mebibytes, seconds, slurm_time

_MOST = 20
"""Runs that are looked at, newest first."""
_GIB = 2**30
_WORTH = 0.8
"""More than this part of what is asked for is right."""


@dataclass(frozen=True)
class Need:
    """One key of the config."""

    key: str
    asked: float | None
    """In seconds, bytes or cores; None where the site's default counts."""
    used: float | None
    enough: float
    override: str | None
    """None where what is asked for is right."""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    folder = options.default_folder() / args.name
    runs = sorted((run for run in runs_of_name(folder) if owner_of(run) is None), key=created, reverse=True)[:_MOST]
    if not runs:
        raise RunError(f"no runs of the name {one_line(args.name)[:80]} here; slurmopt list shows all")
    with slow_notice("reading what the runs have used"):
        read = [found for run in runs if (found := _used(report_on(run))) is not None]
    try:
        resources = Resources(**{**stored_config.group(runs[0], "resources")})
    except (SlurmoptError, TypeError) as error:
        raise RunError(f"{args.name}/{runs[0].id}: its config cannot be used: {one_line(str(error))}") from error
    needs, unknown = _needs(resources, read)
    if args.json:
        command_output.print_json(_as_json(args.name, read, needs, unknown, resources))
    else:
        print("\n".join(_lines(args.name, read, needs, unknown, resources)))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt plan size`."""
    from slurmopt.option_parser import OptionParser

    parser = OptionParser("slurmopt plan size", description="What the runs of a name need, beside what they ask for.")
    parser.add_argument("name", metavar="NAME", help="the name of runs, as launch.name or the experiment's")
    options.add_json(parser)
    return parser


def _used(report: RunReport) -> Used | None:
    if report.ran is None or report.ran <= 0:
        return None
    memory = [value for row in report.node_rows if isinstance(value := row.readings.get("host_memory"), float | int)]
    cores = [value for row in report.node_rows if isinstance(value := row.readings.get("cpu"), float | int)]
    return Used(
        seconds=report.ran,
        finished=report.state == "finished",
        memory=max(memory, default=None),
        cores=max(cores, default=None),
    )


def _needs(resources: Resources, runs: list[Used]) -> tuple[list[Need], list[str]]:
    needs, unknown = [], []
    finished = sum(run.finished for run in runs)
    if (time := time_needed(runs)) is not None:
        asked = None if resources.time is None else float(seconds(resources.time))
        needs.append(_need("resources.time", asked, time_quantile(runs), time, slurm_time(int(time))))
    else:
        why = f"{finished} of {len(runs)} runs finished" if finished >= LEAST else f"{finished} runs finished"
        unknown.append(f"resources.time: {why}; {LEAST} or more tell, unless many others did not")
    if (memory := memory_needed(runs)) is not None:
        asked = None if resources.memory in (None, "0") else float(mebibytes(resources.memory or "0")) * 2**20
        most = max(run.memory or 0.0 for run in runs)
        needs.append(_need("resources.memory", asked, most, memory, f"{math.ceil(memory / _GIB)}GB"))
    else:
        unknown.append("resources.memory: it was measured in fewer than 3 runs")
    if (cores := cores_needed(runs)) is not None:
        ranks = resources.ranks_per_node
        asked = None if resources.cpus_per_task is None else float(resources.cpus_per_task * ranks)
        each = max(1, math.ceil(cores / ranks))
        used = quantile([run.cores for run in runs if run.cores is not None])
        needs.append(_need("resources.cpus_per_task", asked, used, float(each * ranks), str(each)))
    else:
        unknown.append("resources.cpus_per_task: it was measured in fewer than 3 runs")
    return needs, unknown


def _need(key: str, asked: float | None, used: float | None, enough: float, value: str) -> Need:
    is_right = asked is not None and _WORTH * asked <= enough <= asked
    return Need(key, asked, used, enough, None if is_right else f"{key}={value}")


def _wasted(needs: list[Need], runs: list[Used], resources: Resources) -> list[dict[str, Any]]:
    """What was asked for beyond what is enough, times the hours that it was held. Time that a run does not use is given
    back when it ends: asking for less lets backfill start it earlier, and wastes nothing."""
    hours = sum(run.seconds for run in runs) / 3600 * resources.most_nodes
    found = []
    for need in needs:
        if need.key == "resources.time" or need.asked is None or need.asked <= need.enough:
            continue
        over, unit = need.asked - need.enough, "core-hours"
        if need.key == "resources.memory":
            over, unit = over / _GIB, "GiB-hours"
        found.append({"key": need.key, "amount": over * hours, "unit": unit})
    return found


def _lines(name: str, runs: list[Used], needs: list[Need], unknown: list[str], resources: Resources) -> list[str]:
    finished = sum(run.finished for run in runs)
    lines = [f"{one_line(name)}: {len(runs)} runs, {finished} of them finished"]
    if needs:
        rows = [
            [need.key, _text(need.key, need.asked) or "default", _text(need.key, need.used) or "more",
             _text(need.key, need.enough), need.override or "is right"]
            for need in needs
        ]  # fmt: skip
        lines.append(table(["KEY", "ASKED", "USED", "ENOUGH", ""], rows, terminal_width()))
    lines += [f"unknown   {text}" for text in unknown]
    lines += [f"wasted    {each['amount']:,.1f} {each['unit']}" for each in _wasted(needs, runs, resources)]
    if overrides := [need.override for need in needs if need.override is not None]:
        lines.append(f"next      slurmopt launch … {' '.join(overrides)}")
    return lines


def _text(key: str, value: float | None) -> str:
    if value is None:
        return ""
    if key == "resources.time":
        return human_seconds(value)
    return human_bytes(value) if key == "resources.memory" else f"{value:.3g} cores"


def _as_json(
    name: str, runs: list[Used], needs: list[Need], unknown: list[str], resources: Resources
) -> dict[str, Any]:
    return {
        "name": name,
        "runs": len(runs),
        "finished": sum(run.finished for run in runs),
        "needs": [asdict(need) for need in needs],
        "unknown": unknown,
        "wasted": _wasted(needs, runs, resources),
    }
