"""`slurmopt doctor`: checks this machine, Slurm and, with `--nodes`, compute nodes; says what to mend, and how.

The exit status is 1 if a check fails. `--json` prints a list of objects: `name`, `verdict` (pass, warn, fail, skipped),
`text`, `mend` (the command that mends it, or null), `nodes` (null: this machine, or the cluster) and `passing` (whether
it may pass by itself).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from slurmopt import command_output
from slurmopt.checks import side_by_side
from slurmopt.checks.result import FAIL, PASS, SKIPPED, VERDICTS, WARN, CheckResult, worst
from slurmopt.doctor.machine import of_login_node
from slurmopt.doctor.places import Place
from slurmopt.errors import InputError, SlurmoptError, one_line
from slurmopt.runs import colour, options
from slurmopt.slow_notice import slow_notice
from slurmopt.units import seconds

_STYLES = {PASS: "32", WARN: "33", FAIL: "31", SKIPPED: "2"}
_WIDTH = 9
_NAMED = 8


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    _check(args)
    with slow_notice("checking this machine and Slurm"):
        results = side_by_side.run(of_login_node(args.folder, _places(args)))
    if args.nodes is not None:
        results += _of_nodes(args)
    if args.history is not None:
        results += _of_history(args)
    if args.json:
        command_output.print_json([each.as_dict() for each in results])
    else:
        print("\n".join(_lines(results, args.all, colour.wanted(args.color, sys.stdout))))
    return 1 if worst(results) == FAIL else 0


def _check(args: argparse.Namespace) -> None:
    of_nodes = ("partition", "account", "gpus_per_node")
    if args.nodes is None and (given := [name for name in of_nodes if getattr(args, name) is not None]):
        raise InputError(f"doctor: --{given[0].replace('_', '-')} belongs to --nodes N")
    of_bucket = [name for name in ("endpoint", "region") if getattr(args, name) is not None]
    if of_bucket and not any("://" in word for word in args.places):
        raise InputError(f"doctor: --{of_bucket[0]} belongs to a bucket; give s3://BUCKET/PREFIX")


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt doctor`."""
    parser = options.parser("doctor", "Check this machine, Slurm and compute nodes, and say how to mend what is wrong.")
    parser.add_argument("places", nargs="*", metavar="PLACE", help="a folder or s3://BUCKET/PREFIX that runs will use")
    parser.add_argument("--endpoint", metavar="URL", help="of the buckets (default: $AWS_ENDPOINT_URL_S3)")
    parser.add_argument("--region", help="of the buckets (default: $AWS_REGION, $AWS_DEFAULT_REGION or ~/.aws)")
    parser.add_argument("--nodes", type=_count, metavar="N", help="check so many compute nodes too, by a short job")
    parser.add_argument("-p", "--partition", metavar="NAME", help="with --nodes: their partition")
    parser.add_argument("-A", "--account", metavar="NAME", help="with --nodes: the account that is charged")
    parser.add_argument("--gpus-per-node", type=_count, metavar="N", help="with --nodes: GPUs that are looked at")
    parser.add_argument("--within", default="60s", metavar="TIME", help="with --nodes: wait for them so long at most")
    history = parser.add_argument_group("your runs against the targets of your site")
    history.add_argument("--history", metavar="TIME", help="score the runs launched in the last TIME, such as 30d")
    history.add_argument("--recovery", default="5m", metavar="TIME", help="from an end to the next step (5m)")
    history.add_argument(
        "--completion", type=_percent, default=0.95, metavar="PERCENT", help="of runs that finish (95)"
    )
    history.add_argument("--utilisation", type=_percent, default=0.8, metavar="PERCENT", help="of the GPU time (80)")
    history.add_argument("--wait", default="30m", metavar="TIME", help="in the queue (30m)")
    parser.add_argument("--all", action="store_true", help="also show what passed, one line each")
    options.add_color(parser)
    options.add_json(parser)
    return parser


def _places(args: argparse.Namespace) -> list[Place]:
    """Those that are given; paths as other nodes see them."""
    words = [word if "://" in word else os.path.abspath(os.path.expanduser(word)) for word in args.places]
    return [Place(word, args.endpoint, args.region) for word in words]


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 100_000):
        raise argparse.ArgumentTypeError(f"{text!r} is not valid; valid: a number such as 2")
    return int(text)


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid; valid: a number from 0 to 100")
    return value / 100


def _of_history(args: argparse.Namespace) -> list[CheckResult]:
    from slurmopt.report.targets import Targets, scored
    from slurmopt.report.user_runs import report_on_user

    targets = Targets(_span(args, "recovery"), args.completion, args.utilisation, _span(args, "wait"))
    first = time.time() - _span(args, "history")
    with slow_notice("reading your runs"):
        return list(scored(report_on_user(args.folder, first), targets))


def _span(args: argparse.Namespace, name: str) -> int:
    try:
        return seconds(getattr(args, name))
    except ValueError as error:
        raise InputError(f"doctor: --{name}: {error}") from error


def _of_nodes(args: argparse.Namespace) -> list[CheckResult]:
    from slurmopt.doctor.on_nodes import Nodes, check_nodes

    asked = Nodes(args.nodes, args.partition, args.account, args.gpus_per_node, _span(args, "within"))
    try:
        with slow_notice(f"waiting for {args.nodes} node{'s' * (args.nodes != 1)}"):
            return check_nodes(asked, args.folder, _places(args))
    except SlurmoptError as error:
        return [CheckResult("nodes", FAIL, one_line(str(error)))]


def _lines(results: list[CheckResult], shows_all: bool, is_coloured: bool) -> Iterator[str]:
    """The worst first; what passed in one line, unless all are asked for."""
    passed = [each for each in results if each.verdict == PASS]
    nodes: dict[CheckResult, list[str]] = {}
    for each in sorted(results, key=lambda each: VERDICTS.index(each.verdict)):
        if each.verdict != PASS or shows_all:
            nodes.setdefault(replace(each, nodes=None), []).extend(each.nodes or ())
    for each, where in nodes.items():
        place = f"{_listed(where)}: " if where else ""
        yield _verdict(each.verdict, is_coloured) + one_line(f"{place}{each.name}: {each.text}")
        if each.mend:
            yield " " * _WIDTH + one_line(f"mend: {each.mend}")
    if passed and not shows_all:
        names = ", ".join(dict.fromkeys(each.name for each in passed))
        yield _verdict(PASS, is_coloured) + one_line(f"{len(passed)} checks: {names}")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(sorted(names)[:_NAMED]) + more


def _verdict(word: str, is_coloured: bool) -> str:
    padding = " " * (_WIDTH - len(word))
    return f"\x1b[{_STYLES[word]}m{word}\x1b[0m{padding}" if is_coloured else f"{word}{padding}"
