"""Prices of GPU-hours, from a file that a site can replace: parsed strictly, and never guessed.

currency: USD
prices:                       the first one that fits counts; of the same words, the newest that was valid
  - gpu: A100 80GB            fits a GPU whose name has all of these words, such as NVIDIA A100-SXM4-80GB
    per_hour: 3.43            of one GPU, with its part of the node
    date: 2026-11-09          valid from then on
    source: where it stands
    instance: p4de.24xlarge   for people; may be left out
cpu_per_hour: 0.04            of one CPU, for runs without GPUs; may be left out
co2:                          may be left out: no CO2 is told then
  kg_per_kwh: 0.2
  source: where it stands
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurmopt.errors import ConfigError, one_line

_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_MOST = 1e6
_LONGEST = 300
_KEYS = ("currency", "prices", "cpu_per_hour", "co2")
_PRICE_KEYS = ("gpu", "per_hour", "date", "source", "instance")
_CO2_KEYS = ("kg_per_kwh", "source")


@dataclass(frozen=True)
class Price:
    """The price of an hour of one GPU."""

    gpu: str
    per_hour: float
    date: str
    """As 2026-11-09."""
    source: str
    currency: str
    instance: str | None = None


@dataclass(frozen=True)
class Prices:
    """A parsed file."""

    currency: str
    prices: tuple[Price, ...]
    cpu_per_hour: float | None = None
    co2_kg_per_kwh: float | None = None
    co2_source: str | None = None

    def price_of(self, gpu: str | None, date: str) -> Price | None:
        """The price of a GPU, by its name as NVML tells it or by its type in Slurm, at a date such as 2026-11-24: the
        newest that was valid then, else the oldest. None where no price fits."""
        words = _words(gpu or "")
        fitting = [price for price in self.prices if _words(price.gpu) <= words]
        if not fitting:
            return None
        same = [price for price in fitting if _words(price.gpu) == _words(fitting[0].gpu)]
        valid = [price for price in same if price.date <= date]
        return max(valid, key=lambda price: price.date) if valid else min(same, key=lambda price: price.date)


def parse(value: Any, place: str) -> Prices:
    """The prices in the content of a file. `place`: the file, for messages. Raises ConfigError for the first thing that
    is wrong: what, where, and what would be valid."""
    top = _mapping(value, place, "", _KEYS)
    currency = _text(top, "currency", place, "")
    rows = top.get("prices")
    if not isinstance(rows, list):
        raise _error(place, "prices", rows, "a list of prices")
    co2 = top.get("co2")
    factor = None if co2 is None else _mapping(co2, place, "co2", _CO2_KEYS)
    return Prices(
        currency=currency,
        prices=tuple(_price(row, currency, place, f"prices[{at}]") for at, row in enumerate(rows)),
        cpu_per_hour=None if top.get("cpu_per_hour") is None else _amount(top, "cpu_per_hour", place, ""),
        co2_kg_per_kwh=None if factor is None else _amount(factor, "kg_per_kwh", place, "co2"),
        co2_source=None if factor is None else _text(factor, "source", place, "co2"),
    )


def _price(row: Any, currency: str, place: str, where: str) -> Price:
    fields = _mapping(row, place, where, _PRICE_KEYS)
    date = str(fields.get("date"))  # YAML makes a date of it
    if not _DATE.fullmatch(date):
        raise _error(place, f"{where}.date", fields.get("date"), "a date such as 2026-11-09")
    gpu = _text(fields, "gpu", place, where)
    if not _words(gpu):
        raise _error(place, f"{where}.gpu", gpu, "words of the GPU's name, such as A100 80GB")
    return Price(
        gpu=gpu,
        per_hour=_amount(fields, "per_hour", place, where),
        date=date,
        source=_text(fields, "source", place, where),
        currency=currency,
        instance=None if fields.get("instance") is None else _text(fields, "instance", place, where),
    )


def _mapping(value: Any, place: str, where: str, keys: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _error(place, where, value, f"a mapping with {', '.join(keys)}")
    for key in value:
        if key not in keys:
            raise _error(place, where, key, f"the keys {', '.join(keys)}")
    return value


def _text(fields: Mapping[str, Any], key: str, place: str, where: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST or one_line(value) != value:
        raise _error(place, f"{where}.{key}".strip("."), value, "one line of text")
    return value.strip()


def _amount(fields: Mapping[str, Any], key: str, place: str, where: str) -> float:
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MOST:
        raise _error(place, f"{where}.{key}".strip("."), value, "a number from 0 to 1,000,000")
    return float(value)


def _error(place: str, where: str, value: Any, valid: str) -> ConfigError:
    shown = "is missing" if value is None else f"{one_line(repr(value))[:60]} is not valid"
    return ConfigError(f"{shown}; valid: {valid}", f"{one_line(place)}: {where}" if where else one_line(place))


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))
