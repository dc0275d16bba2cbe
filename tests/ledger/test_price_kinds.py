"""Ways of paying for GPU-hours in the file of prices: kinds, on-premise prices by amortisation, rates of storage."""

from __future__ import annotations

from typing import Any

import pytest

from slurmopt.errors import ConfigError
from slurmopt.ledger.prices import Price, parse

NODE = {"cost": 400_000, "gpus": 8, "years": 4, "used": 0.5}


def row(**fields: Any) -> dict[str, Any]:
    return {"gpu": "H100", "date": "2026-01-01", "source": "ours", "per_hour": 4.0, **fields}


def prices(*rows: dict[str, Any], **rest: Any) -> Any:
    return parse({"currency": "EUR", "prices": list(rows), **rest}, "prices.yaml")


def own(**fields: Any) -> dict[str, Any]:
    made = row(kind="on-premise", amortised={**NODE, **fields})
    del made["per_hour"]
    return made


def shown(ways: list[Price]) -> list[tuple[str, str | None, float]]:
    return [(price.kind, price.terms, price.per_hour) for price in ways]


def test_each_way_of_paying_has_its_newest_valid_price() -> None:
    known = prices(
        row(),
        row(per_hour=3.5, date="2026-06-01"),
        row(per_hour=9.0, date="2027-01-01"),
        row(kind="reserved", terms="1 year", per_hour=2.5),
        row(kind="reserved", terms="3 years", per_hour=1.9),
        row(kind="spot", per_hour=1.2, date="2027-01-01"),  # not valid yet
        row(gpu="A100 80GB", kind="spot", per_hour=0.7),
    )
    assert shown(known.ways("NVIDIA H100 80GB HBM3", "2026-11-28")) == [
        ("on-demand", None, 3.5),
        ("reserved", "1 year", 2.5),
        ("reserved", "3 years", 1.9),
    ]
    assert known.ways("l4", "2026-11-28") == []


def test_the_kind_of_the_first_price_that_fits_is_that_of_reports() -> None:
    reserved_first = prices(row(kind="reserved", per_hour=2.5), row(per_hour=4.0, date="2026-06-01"))
    price = reserved_first.price_of("h100", "2026-11-28")
    assert price is not None
    assert (price.kind, price.per_hour) == ("reserved", 2.5)


def test_an_hour_of_ones_own_gpu_pays_for_the_idle_ones_too() -> None:
    """400,000 over 4 years of 8 GPUs of which half is used: 11.4155 an hour of the node, 2.8539 of a used GPU."""
    (price,) = prices(own()).ways("h100", "2026-11-28")
    assert price.per_hour == pytest.approx(400_000 / 4 / 8760 / 4)
    (price,) = prices(own(yearly=8760, kilowatts=10, per_kwh=0.2)).ways("h100", "2026-11-28")
    assert price.per_hour == pytest.approx((400_000 / 4 / 8760 + 1 + 2) / 4)


def test_a_whole_cluster_can_be_amortised() -> None:
    """5 million over 4 years of 128 GPUs of which 70 % are used: 1.5925 an hour."""
    (price,) = prices(own(cost=5_000_000, gpus=128, used=0.7)).ways("h100", "2026-11-28")
    assert price.per_hour == pytest.approx(1.5925, rel=1e-4)


def test_the_newest_rate_of_a_storage_that_was_valid() -> None:
    rate = {"name": "s3-standard", "per_gb_month": 0.023, "date": "2026-01-01", "source": "AWS"}
    known = prices(row(), storage=[rate, {**rate, "per_gb_month": 0.5, "date": "2027-01-01"}])
    found = known.storage_of("s3-standard", "2026-11-28")
    assert found is not None
    assert found.per_gb_month == 0.023
    assert known.storage_of("glacier", "2026-11-28") is None
    assert known.storage_of("s3-standard", "2025-11-28") is None


@pytest.mark.parametrize(
    ("rows", "rest", "said"),
    [
        (row(kind="free"), {}, "prices[0].kind: 'free' is not valid; valid: one of on-demand, reserved, savings-plan"),
        (row(kind=["spot"]), {}, "prices[0].kind: ['spot'] is not valid"),
        (row(terms="\x1b[2J"), {}, "prices[0].terms: "),
        (row(amortised=NODE), {}, "prices[0].amortised: 'amortised' is not valid; valid: with kind: on-premise"),
        (own() | {"per_hour": 1}, {}, "prices[0].amortised: 'amortised' is not valid; valid: with kind: on-premise"),
        (own(used=1.5), {}, "prices[0].amortised.used: 1.5 is not valid; valid: a number from 0.01 to 1"),
        (own(used=0), {}, "prices[0].amortised.used: 0 is not valid; valid: a number from 0.01 to 1"),
        (own(gpus=float("nan")), {}, "prices[0].amortised.gpus: nan is not valid"),
        (own(gpus=8.5), {}, "prices[0].amortised.gpus: 8.5 is not valid; valid: a whole number from 1 to 1,000,000"),
        (own(years=1e-300), {}, "prices[0].amortised.years: 1e-300 is not valid; valid: a number from 0.1 to 50"),
        (
            row(per_hour=5e-324),
            {},
            "prices[0].per_hour: 5e-324 is not valid; valid: a number from 0.000001 to 1,000,000",
        ),
        (own(cost=None), {}, "prices[0].amortised.cost: is missing"),
        (own(year=1), {}, "prices[0].amortised: 'year' is not valid; valid: the keys cost, gpus, years, used"),
        (row() | {"per_hour": None}, {}, "prices[0].per_hour: is missing"),
        (row(), {"storage": {}}, "storage: {} is not valid; valid: a list of rates"),
        (row(), {"storage": [{"name": "s3", "per_gb_month": -1, "date": "2026-01-01", "source": "x"}]}, "storage[0].p"),
        (row(), {"storage": [{"name": "s3", "per_gb_month": 1, "date": "soon", "source": "x"}]}, "storage[0].date: "),
    ],
)
def test_nonsense_is_told_in_one_line(rows: dict[str, Any], rest: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        prices(rows, **rest)
    assert said in str(raised.value)
    assert str(raised.value).isprintable()
