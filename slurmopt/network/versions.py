"""Versions such as 2.27.3+cuda12.9 and 1.13.2-aws, compared by their numbers."""

from __future__ import annotations

import re
from itertools import zip_longest

Version = tuple[int, ...]
_NUMBER = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,3})(?![\d.])")


def parse(text: str) -> Version:
    """`2.27.3` as numbers; what follows them, such as `amzn1.0`, is left out. Raises ValueError."""
    match = _NUMBER.match(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is no version; valid: numbers with dots, such as 2.27.3")
    return tuple(map(int, match[1].split(".")))


def text(version: Version) -> str:
    return ".".join(map(str, version))


def is_before(version: Version, other: Version) -> bool:
    """Whether `version` is earlier; 2.17 is 2.17.0."""
    pairs = list(zip_longest(version, other, fillvalue=0))
    return [one for one, _ in pairs] < [two for _, two in pairs]


def satisfies(version: Version, condition: str) -> bool:
    """Whether a version is in a range such as `>=2.27,<2.29`."""
    return all(
        is_before(version, parse(part[1:])) if part[0] == "<" else not is_before(version, parse(part[2:]))
        for part in condition.split(",")
    )


def is_earlier(version: str | None, bound: str) -> bool:
    """Whether a version, as text, is known and earlier than `bound`. A build of one's own may be called `nightly`."""
    try:
        return version is not None and is_before(parse(version), parse(bound))
    except ValueError:
        return False
