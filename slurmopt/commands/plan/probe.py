"""`slurmopt plan probe`: short runs of an experiment on a few numbers of nodes, and what they say of others.

Each probe is a run of its own, NAME-probe-N on N nodes, which is cancelled once it has made enough steps.

`--json` prints one object; times are seconds of a step:

    name        of the experiment
    scaling     strong (one global batch) or weak (one batch per GPU)
    probes      a list of nodes, run (its folder), state, seconds (null where it failed), efficiency (to the smallest)
    serial_fraction  of Amdahl's law, for the step on one node; null with fewer than two probes, and in weak scaling
    laws        what is fitted: Amdahl's law in strong scaling; in weak scaling the growth with the logarithm, by which
                predictions are made, and Gustafson's law. A list of name, formula, values (of its letters), fraction
                (the interval of f; null where there is no f) and meaning; empty with fewer than two probes
    predicted   a list of nodes, seconds (an interval), far (more than four times the largest probe)
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import time
from dataclasses import asdict
from typing import Any

from slurmopt import command_output
from slurmopt.errors import InputError, one_line
from slurmopt.estimates.probes import ProbeRun, end, looked_at, name_of, newest
from slurmopt.launching.override_words import merged
from slurmopt.option_parser import OptionParser
from slurmopt.planning.scaling import Fit, Prediction, Probe, fit, strong_efficiency, weak_efficiency
from slurmopt.planning.scaling_laws import Law, laws
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import options
from slurmopt.runs.text_table import table, terminal_width

_NODES = re.compile(r"[1-9]\d{0,5}(,[1-9]\d{0,5})*")
_LOOK = 2.0
"""Seconds between two looks at the probes."""
_FARTHER = (2, 4)
"""Without --predict, so many times the largest probe."""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status: 1 where fewer than two probes tell anything."""
    args = parser().parse_intermixed_args(argv)
    _check(args)
    if args.json:
        command_output.expect_json()
    if args.read is not None:
        name, probes = args.read, looked_at(newest(args.read, options.default_folder()), 1)
    else:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for the answer
            name, runs = _launched(args)
            probes = _waited(args, name, runs)
    known = [Probe(one.nodes, one.seconds) for one in probes if one.seconds is not None]
    found = fit(known, weak=args.weak) if len(known) > 1 else None
    predicted = [] if found is None else [found.predicted(nodes) for nodes in _asked(args, known)]
    if args.json:
        command_output.print_json(_as_json(args, name, probes, found, predicted))
    else:
        print("\n".join(_lines(args, name, probes, found, predicted)))
    if found is None:
        command_output.fail(f"plan probe: {_why_not(probes)}", "RunError")
    return 0 if found is not None else 1


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt plan probe`."""
    parser = OptionParser(
        "slurmopt plan probe",
        usage="slurmopt plan probe [OPTIONS] +experiment=NAME [KEY=VALUE ...]",
        description="Time the steps of an experiment on a few numbers of nodes, and predict others.",
    )
    add = parser.add_argument
    add("overrides", nargs="*", metavar="KEY=VALUE", help="as for slurmopt launch")
    add("--nodes", default="1,2", metavar="N,N", help="the numbers of nodes that are tried (default: 1,2)")
    add("--predict", metavar="N,N", help="those that are predicted (default: 2 and 4 times the largest)")
    add("--steps", type=int, default=50, metavar="N", help="steps of each probe after its first one (default: 50)")
    add("--time", default="20m", help="time limit of each probe (default: 20m)")
    add("--weak", action="store_true", help="the global batch grows with the nodes: weak scaling")
    add("--read", metavar="NAME", help="launch nothing: show the newest probes of an experiment")
    add("--config-dir", metavar="DIR", help="the folder of your configs (default: conf)")
    options.add_json(parser)
    return parser


def _check(args: argparse.Namespace) -> None:
    if args.read is not None and args.overrides:
        raise InputError(f"plan probe: {args.overrides[0]}: --read launches nothing")
    if args.read is None and not args.overrides:
        raise InputError("plan probe: no experiment; valid: slurmopt plan probe +experiment=NAME")
    if args.steps < 10:
        raise InputError(f"plan probe: --steps {args.steps} is not valid; valid: 10 or more")
    for option in ("nodes", "predict"):
        value = getattr(args, option)
        if value is not None and _NODES.fullmatch(value) is None:
            raise InputError(f"plan probe: --{option} {value!r} is not valid; valid: numbers of nodes such as 1,2,4")
    if len(set(args.nodes.split(","))) < 2:
        raise InputError(f"plan probe: --nodes {args.nodes}: one number tells nothing of others; valid: two or more")


def _asked(args: argparse.Namespace, known: list[Probe]) -> list[int]:
    if args.predict is not None:
        return sorted(set(map(int, args.predict.split(","))))
    return [times * max(one.nodes for one in known) for times in _FARTHER]


def _launched(args: argparse.Namespace) -> tuple[str, dict[int, RunFolder]]:
    """Submits all of them, once each has been checked."""
    from slurmopt.launching import execute, run_plan

    name = run_plan.plan(args.overrides, args.config_dir).job.name
    plans = {}
    for nodes in sorted(set(map(int, args.nodes.split(",")))):
        words = [f"resources.nodes={nodes}", f"resources.time={args.time}", f"launch.name={name_of(name, nodes)}"]
        plans[nodes] = run_plan.plan(merged(args.overrides, words), args.config_dir)
    for planned in plans.values():
        execute.ready(planned)
    for planned in plans.values():
        execute.submit(planned)
    return name, {nodes: planned.job.folder for nodes, planned in plans.items()}


def _waited(args: argparse.Namespace, name: str, runs: dict[int, RunFolder]) -> list[ProbeRun]:
    """Until each has made its steps, or has ended. One that has made them is cancelled."""
    told, done = "", dict[int, ProbeRun]()
    try:
        while True:
            for one in looked_at({nodes: run for nodes, run in runs.items() if nodes not in done}, args.steps):
                if one.seconds is not None or one.has_ended:
                    done[one.nodes] = one
                    if not one.has_ended:
                        end(one)
            waits = [nodes for nodes in runs if nodes not in done]
            if not waits:
                return [done[nodes] for nodes in sorted(done)]
            line = f"slurmopt: waits for the probes on {', '.join(map(str, waits))} nodes"
            if line != told:
                print(line, file=sys.stderr, flush=True)
            told = line
            time.sleep(_LOOK)
    except KeyboardInterrupt:
        print(f"\nslurmopt: the probes go on; later: slurmopt plan probe --read {name}; to end one: slurmopt cancel "
              f"{name_of(name, next(iter(runs)))}", file=sys.stderr)  # fmt: skip
        raise


def _efficiency(args: argparse.Namespace, one: ProbeRun, probes: list[ProbeRun]) -> float | None:
    first = next((probe for probe in probes if probe.seconds is not None), None)
    if first is None or first.seconds is None or one.seconds is None:
        return None
    if args.weak:
        return weak_efficiency(first.seconds, one.seconds)
    return strong_efficiency(first.seconds, one.nodes / first.nodes, one.seconds)


def _lines(
    args: argparse.Namespace, name: str, probes: list[ProbeRun], found: Fit | None, predicted: list[Prediction]
) -> list[str]:
    rows = []
    for one in probes:
        efficiency = _efficiency(args, one, probes)
        step = "" if one.seconds is None else f"{one.seconds:.4g} s"
        remark = "" if one.seconds is not None else one_line(f"{one.state}: {one.detail or 'made too few steps'}")
        rows.append([str(one.nodes), step, "" if efficiency is None else f"{efficiency:.0%}", remark])
    for each in predicted:
        step = f"{each.seconds.low:.4g} to {each.seconds.high:.4g} s"
        far = f"far: {each.times_farther:.3g} times the largest probe" if each.is_far else "predicted"
        rows.append([str(each.nodes), step, "", far])
    lines = [f"{one_line(name)}: {'weak' if args.weak else 'strong'} scaling"]
    lines.append(table(["NODES", "STEP", "EFFICIENCY", ""], rows, terminal_width()))
    return lines + [line for law in ([] if found is None else laws(found)) for line in _of_law(law)]


def _of_law(law: Law) -> list[str]:
    values = [f"{name} = {value:.3g} s" for name, value in law.values.items() if name in law.formula and name != "f"]
    if law.fraction is not None:
        values = [f"f = {law.values['f']:.1%} ({law.fraction.low:.1%} to {law.fraction.high:.1%})"]
    return [f"{law.name:<9} {law.formula}, {', '.join(values)}", f"          {law.meaning}"]


def _why_not(probes: list[ProbeRun]) -> str:
    failed = next((one for one in probes if one.seconds is None), None)
    if failed is None:
        return "one probe tells nothing of other numbers of nodes"
    label = f"{failed.run.name}/{failed.run.id}"
    why = one_line(failed.detail or "it made too few steps")
    return f"the probe on {failed.nodes} nodes is {failed.state} ({why}): slurmopt logs {label} --errors tells more"


def _as_json(
    args: argparse.Namespace, name: str, probes: list[ProbeRun], found: Fit | None, predicted: list[Prediction]
) -> dict[str, Any]:
    return {
        "name": name,
        "scaling": "weak" if args.weak else "strong",
        "probes": [
            {"nodes": one.nodes, "run": str(one.run.path), "state": one.state, "seconds": one.seconds,
             "efficiency": _efficiency(args, one, probes)}
            for one in probes
        ],
        "serial_fraction": None if found is None or args.weak else found.serial_fraction,
        "laws": [] if found is None else [_law_as_json(law) for law in laws(found)],
        "predicted": [
            {"nodes": each.nodes, "seconds": [each.seconds.low, each.seconds.high], "far": each.is_far}
            for each in predicted
        ],
    }  # fmt: skip


def _law_as_json(law: Law) -> dict[str, Any]:
    return {**asdict(law), "fraction": None if law.fraction is None else [law.fraction.low, law.fraction.high]}
