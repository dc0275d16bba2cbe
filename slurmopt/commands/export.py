"""`slurmopt export grafana` and `slurmopt export cloudwatch`: dashboards and alarms as JSON.

They are for the names that the sinks of `metrics.prometheus` and `metrics.cloudwatch` send.
"""

from __future__ import annotations

import argparse
import json

from slurmopt.errors import InputError
from slurmopt.runs import options


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    if args.target == "grafana":
        from slurmopt.report.dashboards import grafana

        if given := [name for name in ("alarms", "dimension", "region") if getattr(args, name)]:
            raise InputError(f"export: --{given[0]} is for cloudwatch")
        print(json.dumps(grafana.dashboard(), indent=2))
        return 0
    from slurmopt.report.dashboards import cloudwatch

    dimensions = dict(args.dimension or [])
    if not dimensions:
        raise InputError("export: cloudwatch needs --dimension Experiment=NAME, as the metrics have it")
    if args.alarms:
        print(json.dumps(cloudwatch.alarms(args.namespace, dimensions), indent=2))
    else:
        print(json.dumps(cloudwatch.dashboard(args.namespace, dimensions, args.region), indent=2))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt export`."""
    parser = options.parser("export", "Print a dashboard or alarms for the metrics that runs send, as JSON.")
    parser.add_argument("target", choices=("grafana", "cloudwatch"), help="the dashboard of what")
    parser.add_argument("--alarms", action="store_true", help="of cloudwatch: the alarms instead of the dashboard")
    parser.add_argument("--namespace", default="slurmopt", help="of cloudwatch: the namespace (default: slurmopt)")
    parser.add_argument(
        "--dimension",
        action="append",
        type=_pair,
        metavar="NAME=VALUE",
        help="of cloudwatch: as the metrics have it",
    )
    parser.add_argument("--region", help="of cloudwatch: the region of the dashboard's metrics")
    return parser


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid; valid: NAME=VALUE")
    return name, value
