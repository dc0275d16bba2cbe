"""AWS's list of Savings Plans: `terms.savingsPlan`, each with the rates of the instances that it covers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from slurmopt.importing.price_lists.aws_instances import GPUS
from slurmopt.importing.price_lists.aws_offers import date_of
from slurmopt.importing.price_lists.offers import Offer, amount, mapping
from slurmopt.ledger.prices import SAVINGS_PLAN
from slurmopt.run_folder.json_values import text

_LINUX = "RunInstances"
"""The operation of Linux without extra software; others have a number behind it."""
_SHARED = "BoxUsage:"
"""Shared hardware; in all regions but one a word for the region stands before it, such as USW2-."""


def of_json(value: Mapping[str, Any]) -> Iterator[Offer]:
    """The offers of a list."""
    date, region = date_of(value), text(value.get("regionCode"))
    plans = mapping(value.get("terms")).get("savingsPlan")
    for plan in plans if isinstance(plans, list) else []:
        yield from _of_plan(mapping(plan), date, region)


def _of_plan(plan: Mapping[str, Any], date: str, region: str | None) -> Iterator[Offer]:
    terms = text(plan.get("description"))
    date = date or (text(plan.get("effectiveDate")) or "")[:10]
    rates = plan.get("rates")
    for each in rates if isinstance(rates, list) else []:
        rate = mapping(each)
        price = mapping(rate.get("discountedRate"))
        instance = _instance(text(rate.get("discountedUsageType")) or "")
        hourly = amount(price.get("price"))
        if instance is None or hourly is None or rate.get("unit") != "Hrs" or rate.get("discountedOperation") != _LINUX:
            continue
        gpu, gpus = GPUS[instance]
        yield Offer(
            instance=instance,
            gpu=gpu,
            gpus=gpus,
            per_hour=hourly,
            currency=text(price.get("currency")) or "",
            date=date,
            kind=SAVINGS_PLAN,
            region=text(rate.get("discountedRegionCode")) or region or "?",
            source="AWS Savings Plans price list",
            terms=terms,
        )


def _instance(usage: str) -> str | None:
    """The instance of a usage type such as USW2-BoxUsage:p5.48xlarge, if it is one with GPUs on shared hardware."""
    before, found, instance = usage.partition(_SHARED)
    is_region = before == "" or (before.endswith("-") and before[:-1].isalnum())
    return instance if found and is_region and instance in GPUS else None
