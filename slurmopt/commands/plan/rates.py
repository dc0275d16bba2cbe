"""Prices that are given as options: a positive number each, all in one currency, which is only named."""

from __future__ import annotations

import argparse
import math

from slurmopt.errors import InputError

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


def amount(value: float, currency: str) -> str:
    """A sum for people."""
    digits = f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"
    return f"{digits} {currency}".strip()
