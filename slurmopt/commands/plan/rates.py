"""Prices that are given as options, a positive number each in one currency, or stand in the file of prices."""

from __future__ import annotations

import argparse
import math
import time

from slurmopt.errors import InputError
from slurmopt.ledger.prices import ON_DEMAND, RESERVED, SAVINGS_PLAN, SPOT, Price
from slurmopt.planning.hardware import gpu_of
from slurmopt.report.run.price_file import read_prices

_MOST = 1e6
_LONGEST = 10


def add_currency(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--currency", default="", metavar="USD", help="what the prices are in; it is printed with them")


def currency_of(args: argparse.Namespace, command: str) -> str:
    """The word of --currency; empty where it is not given. Raises InputError."""
    word: str = args.currency
    if word and not (word.isascii() and word.isalpha() and len(word) <= _LONGEST):
        raise InputError(f"{command}: --currency {word[:40]!r} is not valid; valid: a word such as USD")
    return word


def price(text: str | None, option: str) -> float | None:
    """The number of an option; None where it is not given. Raises InputError."""
    if text is None:
        return None
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found <= _MOST:
        raise InputError(f"{option} {text[:40]!r} is not valid; valid: above 0, up to {_MOST:,.0f}")
    return found


def of_file(name: str, command: str) -> tuple[dict[str, Price], str]:
    """The lowest prices of a GPU-hour that the file of prices has today: `committed`, `on-demand` and `spot`, of those
    that it has; and their currency. Raises InputError and ConfigError."""
    gpu = gpu_of(name, f"{command}: --gpu")
    prices = read_prices()
    ways = prices.ways(gpu.device, time.strftime("%Y-%m-%d", time.gmtime()))
    kinds = {"committed": (RESERVED, SAVINGS_PLAN), "on-demand": (ON_DEMAND,), "spot": (SPOT,)}
    found = {
        word: min(fitting, key=lambda price: price.per_hour)
        for word, known in kinds.items()
        if (fitting := [price for price in ways if price.kind in known])
    }
    return found, prices.currency


def amount(value: float, currency: str) -> str:
    """A sum for people."""
    digits = f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"
    return f"{digits} {currency}".strip()
