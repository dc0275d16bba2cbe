"""Prices of GPU-hours, from a file that a site can replace: parsed strictly, and never guessed.

currency: USD
prices:                       the first one that fits counts; of the same words and kind, the newest that was valid
  - gpu: A100 80GB            fits a GPU whose name has all of these words, such as NVIDIA A100-SXM4-80GB
    per_hour: 3.43            of one GPU, with its part of the node
    date: 2026-11-09          valid from then on
    source: where it stands
    kind: on-demand           how it is paid for: one of KINDS; on-demand if it is left out
    terms: 1 year, no upfront     for people; may be left out
    instance: p4de.24xlarge   for people; may be left out
  - gpu: H100
    kind: on-premise
    amortised: {...}          in the place of per_hour: see slurmopt.ledger.amortisation
cpu_per_hour: 0.04            of one CPU, for runs without GPUs; may be left out
storage:                      rates of storage; may be left out
  - name: s3-standard
    per_gb_month: 0.023       of a gigabyte (10^9 bytes) for a month
    date: 2026-11-09
    source: where it stands
transfer:                     of a gigabyte that leaves the cloud or the region; may be left out
  per_gb: 0.09
  date: 2026-11-09
  source: where it stands
co2:                          may be left out: no CO2 is told then
  kg_per_kwh: 0.2
  source: where it stands
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from slurmopt.errors import ConfigError, one_line
from slurmopt.ledger import amortisation

ON_DEMAND, RESERVED, SAVINGS_PLAN, SPOT = "on-demand", "reserved", "savings-plan", "spot"
CAPACITY_BLOCK, ON_PREMISE = "capacity-block", "on-premise"
KINDS = (ON_DEMAND, RESERVED, SAVINGS_PLAN, SPOT, CAPACITY_BLOCK, ON_PREMISE)
"""How GPU-hours are paid for. Those of a commitment (reserved, savings-plan) cost the same whether they are used or
not; a Capacity Block is paid for as a whole."""
_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_LEAST, _MOST = 1e-6, 1e6
"""Of a price above 0."""
_LONGEST = 300
_KEYS = ("currency", "prices", "cpu_per_hour", "storage", "transfer", "co2")
_PRICE_KEYS = ("gpu", "per_hour", "date", "source", "kind", "terms", "instance", "amortised")
_STORAGE_KEYS = ("name", "per_gb_month", "date", "source")
_TRANSFER_KEYS = ("per_gb", "date", "source")
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
    kind: str = ON_DEMAND
    terms: str | None = None


@dataclass(frozen=True)
class StorageRate:
    """The price of keeping a gigabyte (10⁹ bytes) for a month."""

    name: str
    per_gb_month: float
    date: str
    source: str


@dataclass(frozen=True)
class TransferRate:
    """The price of moving a gigabyte (10⁹ bytes)."""

    per_gb: float
    date: str
    source: str


@dataclass(frozen=True)
class Prices:
    """A parsed file."""

    currency: str
    prices: tuple[Price, ...]
    cpu_per_hour: float | None = None
    storage: tuple[StorageRate, ...] = ()
    transfer: TransferRate | None = None
    co2_kg_per_kwh: float | None = None
    co2_source: str | None = None

    def price_of(self, gpu: str | None, date: str) -> Price | None:
        """The price of a GPU, by its name as NVML tells it or by its type in Slurm, at a date such as 2026-11-24: of
        the kind of the first one that fits, the newest that was valid then, else the oldest. None where no price
        fits."""
        fitting = self._fitting(gpu)
        return _at([price for price in fitting if price.kind == fitting[0].kind], date) if fitting else None

    def ways(self, gpu: str | None, date: str) -> list[Price]:
        """A price for each kind and terms that were valid then, in the order of the file."""
        known: dict[tuple[str, str | None], list[Price]] = {}
        for price in self._fitting(gpu):
            if price.date <= date:
                known.setdefault((price.kind, price.terms), []).append(price)
        return [_at(same, date) for same in known.values()]

    def _fitting(self, gpu: str | None) -> list[Price]:
        """Those with the words of the first one that fits."""
        words = _words(gpu or "")
        fitting = [price for price in self.prices if _words(price.gpu) <= words]
        return [price for price in fitting if _words(price.gpu) == _words(fitting[0].gpu)]

    def storage_of(self, name: str, date: str) -> StorageRate | None:
        """The newest rate of a storage that was valid at a date; None where there is none."""
        valid = [rate for rate in self.storage if rate.name == name and rate.date <= date]
        return max(valid, key=lambda rate: rate.date, default=None)


def _at(prices: list[Price], date: str) -> Price:
    """The newest that was valid at a date, else the oldest."""
    valid = [price for price in prices if price.date <= date]
    return max(valid, key=lambda price: price.date) if valid else min(prices, key=lambda price: price.date)


def parse(value: Any, place: str) -> Prices:
    """The prices in the content of a file. `place`: the file, for messages. Raises ConfigError for the first thing that
    is wrong: what, where, and what would be valid."""
    top = _mapping(value, place, "", _KEYS)
    currency = _text(top, "currency", place, "")
    rows = top.get("prices")
    if not isinstance(rows, list):
        raise _error(place, "prices", rows, "a list of prices")
    co2 = top.get("co2")
    rates = [] if top.get("storage") is None else top["storage"]
    if not isinstance(rates, list):
        raise _error(place, "storage", rates, "a list of rates")
    factor = None if co2 is None else _mapping(co2, place, "co2", _CO2_KEYS)
    return Prices(
        currency=currency,
        prices=tuple(_price(row, currency, place, f"prices[{at}]") for at, row in enumerate(rows)),
        cpu_per_hour=None if top.get("cpu_per_hour") is None else _amount(top, "cpu_per_hour", place, ""),
        transfer=None if top.get("transfer") is None else _transfer(top["transfer"], place),
        storage=tuple(_rate(row, place, f"storage[{at}]") for at, row in enumerate(rates)),
        co2_kg_per_kwh=None if factor is None else _amount(factor, "kg_per_kwh", place, "co2"),
        co2_source=None if factor is None else _text(factor, "source", place, "co2"),
    )


def _price(row: Any, currency: str, place: str, where: str) -> Price:
    fields = _mapping(row, place, where, _PRICE_KEYS)
    gpu = _text(fields, "gpu", place, where)
    if not _words(gpu):
        raise _error(place, f"{where}.gpu", gpu, "words of the GPU's name, such as A100 80GB")
    kind = fields.get("kind", ON_DEMAND)
    if kind not in KINDS:
        raise _error(place, f"{where}.kind", kind, f"one of {', '.join(KINDS)}")
    return Price(
        gpu=gpu,
        per_hour=_per_hour(fields, kind, place, where),
        date=_date(fields, place, where),
        source=_text(fields, "source", place, where),
        currency=currency,
        instance=_text_or_none(fields, "instance", place, where),
        kind=kind,
        terms=_text_or_none(fields, "terms", place, where),
    )


def _per_hour(fields: Mapping[str, Any], kind: str, place: str, where: str) -> float:
    if "amortised" not in fields:
        return _amount(fields, "per_hour", place, where)
    if kind != ON_PREMISE or "per_hour" in fields:
        raise _error(place, f"{where}.amortised", "amortised", f"with kind: {ON_PREMISE}, in the place of per_hour")
    where = f"{where}.amortised"
    values = _mapping(fields["amortised"], place, where, tuple(amortisation.LIMITS))
    numbers = {}
    for key, (least, most) in amortisation.LIMITS.items():
        value = values.get(key, None if key in amortisation.NEEDED else 0.0)
        if not _is_number(value) or not least <= value <= most or (key == "gpus" and value != int(value)):
            whole = "a whole number" if key == "gpus" else "a number"
            raise _error(place, f"{where}.{key}", value, f"{whole} from {least:g} to {most:,.10g}")
        numbers[key] = float(value)
    return amortisation.Amortised(**numbers).per_hour


def _rate(row: Any, place: str, where: str) -> StorageRate:
    fields = _mapping(row, place, where, _STORAGE_KEYS)
    return StorageRate(
        name=_text(fields, "name", place, where),
        per_gb_month=_amount(fields, "per_gb_month", place, where),
        date=_date(fields, place, where),
        source=_text(fields, "source", place, where),
    )


def _transfer(value: Any, place: str) -> TransferRate:
    fields = _mapping(value, place, "transfer", _TRANSFER_KEYS)
    return TransferRate(
        per_gb=_amount(fields, "per_gb", place, "transfer"),
        date=_date(fields, place, "transfer"),
        source=_text(fields, "source", place, "transfer"),
    )


def is_date(word: str) -> bool:
    """Whether it is a date such as 2026-11-09."""
    return _DATE.fullmatch(word) is not None


def _date(fields: Mapping[str, Any], place: str, where: str) -> str:
    date = str(fields.get("date"))  # YAML makes a date of it
    if not is_date(date):
        raise _error(place, f"{where}.date", fields.get("date"), "a date such as 2026-11-09")
    return date


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
        raise _error(place, f"{where}.{key}".strip("."), value, f"one line of text, up to {_LONGEST} characters")
    return value.strip()


def _text_or_none(fields: Mapping[str, Any], key: str, place: str, where: str) -> str | None:
    return None if fields.get(key) is None else _text(fields, key, place, where)


def _amount(fields: Mapping[str, Any], key: str, place: str, where: str) -> float:
    value = fields.get(key)
    if not _is_number(value) or not (value == 0 or _LEAST <= value <= _MOST):
        raise _error(place, f"{where}.{key}".strip("."), value, f"a number from {_LEAST:f} to {_MOST:,.0f}, or 0")
    return float(value)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _error(place: str, where: str, value: Any, valid: str) -> ConfigError:
    missing = "is missing" if where else "is empty"
    shown = missing if value is None else f"{one_line(repr(value))[:60]} is not valid"
    return ConfigError(f"{shown}; valid: {valid}", f"{one_line(place)}: {where}" if where else one_line(place))


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))
