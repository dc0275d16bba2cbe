"""Prices of GPU-hours: what fits which GPU, and what is said of a file with nonsense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurmopt.errors import ConfigError
from slurmopt.ledger.energy import energy
from slurmopt.ledger.prices import parse
from slurmopt.report.run.price_file import read_prices
from slurmopt.run_folder.series.series import Series

GOOD = {
    "currency": "EUR",
    "prices": [
        {"gpu": "A100 80GB", "per_hour": 2, "date": "2025-01-01", "source": "our contract"},
        {"gpu": "A100 80GB", "per_hour": 1.5, "date": "2026-01-01", "source": "our new contract"},
        {"gpu": "H100", "per_hour": 3.0, "date": "2025-01-01", "source": "our contract", "instance": "rack 7"},
    ],
}


@pytest.mark.parametrize(
    ("gpu", "date", "per_hour"),
    [
        ("NVIDIA A100-SXM4-80GB", "2026-06-01", 1.5),
        ("NVIDIA A100 80GB PCIe", "2025-06-01", 2.0),
        ("NVIDIA A100-SXM4-80GB", "2020-01-01", 2.0),
        ("NVIDIA A100-SXM4-40GB", "2026-06-01", None),
        ("NVIDIA H100 80GB HBM3", "2026-06-01", 3.0),
        ("h100", "2026-06-01", 3.0),
        ("NVIDIA GH100 480GB", "2026-06-01", None),
        ("a100", "2026-06-01", None),  # of which memory?
        (None, "2026-06-01", None),
    ],
)
def test_the_price_of_a_gpu(gpu: str | None, date: str, per_hour: float | None) -> None:
    price = parse(GOOD, "prices.yaml").price_of(gpu, date)
    assert (price.per_hour if price else None) == per_hour


def test_the_prices_that_ship_have_a_date_and_a_source() -> None:
    prices = read_prices({})
    assert prices.currency == "USD"
    assert all(price.source and price.date >= "2026" and price.per_hour > 0 for price in prices.prices)
    assert prices.price_of("NVIDIA H100 80GB HBM3", "2026-11-24") is not None
    assert prices.co2_kg_per_kwh is None  # nobody has stated one


def changed(*path: Any, value: Any) -> dict[str, Any]:
    """GOOD with another value at a place."""
    made = {**GOOD, "prices": [dict(row) for row in GOOD["prices"]]}  # type: ignore[attr-defined]
    place: Any = made
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return made


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "prices.yaml: is empty; valid: a mapping"),
        (
            [],
            "prices.yaml: [] is not valid; valid: a mapping with currency, prices, cpu_per_hour, storage",
        ),
        (changed("prize", value=1), "'prize' is not valid; valid: the keys currency, prices"),
        (changed("currency", value=3), "currency: 3 is not valid; valid: one line of text"),
        (changed("prices", value={}), "prices: {} is not valid; valid: a list of prices"),
        (changed("prices", 1, "per_hour", value="free"), "prices[1].per_hour: 'free' is not valid; valid: a number"),
        (changed("prices", 1, "per_hour", value=float("nan")), "prices[1].per_hour: nan is not valid"),
        (changed("prices", 1, "per_hour", value=-1), "prices[1].per_hour: -1 is not valid"),
        (changed("prices", 1, "per_hour", value=True), "prices[1].per_hour: True is not valid"),
        (changed("prices", 0, "date", value="yesterday"), "prices[0].date: 'yesterday' is not valid; valid: a date"),
        (changed("prices", 0, "date", value=None), "prices[0].date: is missing; valid: a date such as"),
        (changed("prices", 2, "source", value=""), "prices[2].source: '' is not valid; valid: one line of text"),
        (changed("prices", 2, "source", value="\x1b[2J"), "prices[2].source: "),
        (changed("prices", 2, "gpu", value="--"), "prices[2].gpu: '--' is not valid"),
        (changed("prices", 2, value="H100"), "prices[2]: 'H100' is not valid; valid: a mapping with gpu, per_hour"),
        (changed("co2", value={"kg_per_kwh": 0.2}), "co2.source: is missing"),
    ],
)
def test_nonsense_is_told_in_one_line(value: Any, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(value, "prices.yaml")
    assert said in str(raised.value)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("text", ["prices: [", "\t", "- 1", "currency: !!python/object:os.system {}", "x: &a [*a]"])
def test_a_file_of_ones_own(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("currency: EUR\nprices: [{gpu: L4, per_hour: 0.3, date: 2026-01-01, source: ours}]\n")
    assert read_prices({"SLURMOPT_PRICES": str(path)}).prices[0].per_hour == 0.3
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.yaml") as raised:
        read_prices({"SLURMOPT_PRICES": str(path)})
    assert str(raised.value).isprintable()
    with pytest.raises(ConfigError, match="SLURMOPT_PRICES"):
        read_prices({"SLURMOPT_PRICES": str(tmp_path / "absent.yaml")})


def test_energy_counts_what_was_measured() -> None:
    """Two GPUs at 400 W for half an hour, of one of which ten minutes were not measured."""
    series = Series("node1", 0, [600.0, 1200.0, 1800.0], [600.0] * 3)
    series.values = {"gpu0.power": [400.0] * 3, "gpu1.power": [400.0, None, 400.0], "node.power": [9e9] * 3}
    found = energy([series])
    assert found is not None
    assert found.kwh == pytest.approx(0.4 * 5 / 6)
    assert (found.measured, found.share_of(3_600_000)) == (3000.0, pytest.approx(5 / 6))
    assert found.co2(0.5) == pytest.approx(found.kwh / 2)
    assert energy([Series("node1", 0)]) is None
