"""Offers of instances, whatever list they stand in, and the rows of a file of prices that they become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from slurmopt.errors import InputError, one_line
from slurmopt.ledger.prices import KINDS
from slurmopt.run_folder.json_values import number

_MOST = 1e6
_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What one instance of a type costs an hour."""

    instance: str
    gpu: str
    """Words of the GPU's name."""
    gpus: float
    per_hour: float
    """Of the instance."""
    currency: str
    date: str
    kind: str
    region: str
    source: str
    terms: str | None = None


def amount(value: Any) -> float | None:
    """A price that a list gives as a number or as a text; None where it is none."""
    try:
        found = number(float(value)) if isinstance(value, str) else number(value)
    except ValueError:
        return None
    return found if found is not None and 0 <= found <= _MOST else None


def mapping(value: Any) -> Mapping[str, Any]:
    """`value`, if it is one; empty where a list has something else in its place."""
    return value if isinstance(value, dict) else {}


def chosen(offers: Iterable[Offer], region: str | None, currency: str) -> tuple[list[Offer], list[str]]:
    """The offers of one region in one currency, one for each instance, kind and terms, and remarks. Offers for nothing
    are left out: a list has them for reservations. Of several prices the highest counts.

    Raises InputError where there are several regions and none is asked for, or nothing is left.
    """
    found = [offer for offer in offers if offer.per_hour > 0]
    if not found:
        raise InputError("no price of a GPU instance is in it")
    regions = sorted({offer.region for offer in found})
    if region is None and len(regions) > 1:
        shown = ", ".join(regions[:_SHOWN]) + (" …" if len(regions) > _SHOWN else "")
        raise InputError(f"has prices of {len(regions)} regions; valid: --region with one of {one_line(shown)}")
    region = region or regions[0]
    here = [offer for offer in found if offer.region == region]
    if not here:
        raise InputError(
            f"has no prices of region {one_line(region)!r}; valid: {one_line(', '.join(regions[:_SHOWN]))}"
        )
    mine = [offer for offer in here if offer.currency == currency]
    if not mine:
        others = sorted({offer.currency for offer in here})
        raise InputError(f"has no prices in {currency}; valid: --currency {one_line(' or '.join(others[:_SHOWN]))}")
    return _highest(mine)


def _highest(offers: list[Offer]) -> tuple[list[Offer], list[str]]:
    known: dict[tuple[str, str, str | None], list[Offer]] = {}
    for offer in offers:
        known.setdefault((offer.instance, offer.kind, offer.terms), []).append(offer)
    remarks = [
        f"{one_line(instance)} has {len(prices)} prices {kind}: the highest is taken"
        for (instance, kind, _), same in known.items()
        if len(prices := {offer.per_hour for offer in same}) > 1
    ]
    best = [max(same, key=lambda offer: offer.per_hour) for same in known.values()]
    return sorted(
        best, key=lambda offer: (KINDS.index(offer.kind), offer.gpu, offer.instance, offer.terms or "")
    ), remarks


def row(offer: Offer) -> dict[str, Any]:
    """The row of a file of prices."""
    fields = {
        "gpu": offer.gpu,
        "per_hour": round(offer.per_hour / offer.gpus, 6),
        "date": offer.date,
        "kind": offer.kind,
        "terms": offer.terms,
        "instance": offer.instance,
        "source": f"{offer.source}, {offer.region}",
    }
    return {key: value for key, value in fields.items() if value is not None}
