"""The answer of `aws ec2 describe-spot-price-history`: the prices of each zone, at the times at which they changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from slurmopt.importing.price_lists.aws_instances import GPUS
from slurmopt.importing.price_lists.offers import Offer, amount
from slurmopt.ledger.prices import SPOT
from slurmopt.run_folder.json_values import text

_ZONE = re.compile(r"([a-z]{2,}(?:-[a-z]+)+-\d+)[a-z]")
_LINUX = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
Change = tuple[datetime, float]


def of_json(value: Mapping[str, Any]) -> Iterator[Offer]:
    """An offer for each instance and region: of its zones the one whose price was lowest in the mean over time."""
    changes = _changes(value)
    end = max((at for each in changes.values() for at, _ in each), default=None)
    best: dict[tuple[str, str], tuple[float, str, datetime]] = {}
    for (instance, zone), each in changes.items():
        region = _ZONE.fullmatch(zone)
        assert end is not None
        price = _mean(sorted(each), end)
        key = (instance, region[1] if region else zone)
        if key not in best or price < best[key][0]:
            best[key] = (price, zone, min(each)[0])
    for (instance, place), (price, zone, since) in best.items():
        assert end is not None
        gpu, gpus = GPUS[instance]
        yield Offer(
            instance=instance,
            gpu=gpu,
            gpus=gpus,
            per_hour=price,
            currency="USD",  # EC2 has no others for spot
            date=f"{end:%Y-%m-%d}",
            kind=SPOT,
            region=place,
            source="AWS spot price history",
            terms=f"{zone}, mean from {since:%Y-%m-%d} on",
        )


def _changes(value: Mapping[str, Any]) -> dict[tuple[str, str], list[Change]]:
    """(Instance, zone) → the prices and since when."""
    found: dict[tuple[str, str], list[Change]] = {}
    listed = value.get("SpotPriceHistory")
    for each in listed if isinstance(listed, list) else []:
        row = each if isinstance(each, dict) else {}
        instance, zone = text(row.get("InstanceType")), text(row.get("AvailabilityZone"))
        price = amount(row.get("SpotPrice"))
        at = _time(text(row.get("Timestamp")) or "")
        if (
            instance
            and instance in GPUS
            and zone
            and price is not None
            and at
            and row.get("ProductDescription") in _LINUX
        ):
            found.setdefault((instance, zone), []).append((at, price))
    return found


def _time(word: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(word.replace("Z", "+00:00"))  # Python 3.10 knows no Z
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _mean(changes: Sequence[Change], end: datetime) -> float:
    """Each price counts for as long as it lasted, the last one up to the newest change of all zones."""
    spans = [*((later[0] - one[0]).total_seconds() for one, later in pairwise(changes))]
    spans.append((end - changes[-1][0]).total_seconds())
    if sum(spans) == 0:
        return changes[-1][1]
    return sum(price * span for (_, price), span in zip(changes, spans, strict=True)) / sum(spans)
