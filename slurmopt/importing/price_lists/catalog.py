"""A catalogue of instances with the columns of SkyPilot's: InstanceType, AcceleratorName, AcceleratorCount, Price,
SpotPrice, Region, AvailabilityZone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from slurmopt.importing.price_lists.offers import Offer, amount
from slurmopt.ledger.prices import ON_DEMAND, SPOT

COLUMNS = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region")
_WORDS = {"A100": "A100 40GB", "V100": "V100 16GB"}
"""Names that do not tell the memory: A100-80GB and V100-32GB are the others."""


def of_csv(rows: Iterable[Mapping[str, str]], date: str) -> Iterator[Offer]:
    """The offers on demand and, for the zone where it is lowest, on the spot market. `date`: the catalogue has none."""
    spot: dict[tuple[str, str], Offer] = {}
    for row in rows:
        for offer in _offers(row, date):
            if offer.kind == ON_DEMAND:
                yield offer
                continue
            key = (offer.instance, offer.region)
            if offer.per_hour > 0 and (key not in spot or offer.per_hour < spot[key].per_hour):
                spot[key] = offer
    yield from spot.values()


def _offers(row: Mapping[str, str], date: str) -> Iterator[Offer]:
    name, gpus = (row.get("AcceleratorName") or "").strip(), amount(row.get("AcceleratorCount") or "")
    instance, region = (row.get("InstanceType") or "").strip(), (row.get("Region") or "").strip()
    if not (name and gpus and instance and region):
        return
    gpu = _WORDS.get(name, name.replace("-", " "))
    for column, kind in (("Price", ON_DEMAND), ("SpotPrice", SPOT)):
        hourly = amount(row.get(column) or "")
        if hourly is not None:
            yield Offer(
                instance=instance, gpu=gpu, gpus=gpus, per_hour=hourly, currency="USD", date=date, kind=kind,
                region=region, source="catalogue of SkyPilot",
                terms=(row.get("AvailabilityZone") or "").strip() or None if kind == SPOT else None,
            )  # fmt: skip
