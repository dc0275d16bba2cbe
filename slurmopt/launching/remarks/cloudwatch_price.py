"""Estimates what CloudWatch will charge for the metrics of a run, in a line that a launch prints."""

from __future__ import annotations

from slurmopt.config.schema import Settings
from slurmopt.run_folder.series.export_names import cloudwatch_names

PRICE, DATE = 0.30, "2026-11"
"""US dollars for a custom metric and month, of the first 10,000 of an account in us-east-1, and when that was read. A
metric is billed by the hours in which it is sent."""


def price_line(settings: Settings) -> str | None:
    """The line; None if nothing is sent there."""
    options = settings.metrics.cloudwatch
    if options.namespace is None:
        return None
    resources = settings.resources
    gpus = resources.most_nodes * (resources.gpus_per_node or 0)
    count = sum(gpus if options.gpu and of_gpu else 1 for of_gpu in cloudwatch_names().values())
    return (
        f"metrics.cloudwatch: up to {count} metrics of hardware, about ${count * PRICE:,.2f} a month if sent all the "
        f"time, and ${PRICE:.2f} for each name given to progress (${PRICE:.2f} for a metric and month as of {DATE}, "
        "billed by the hour; runs with the same dimensions share metrics)"
    )
