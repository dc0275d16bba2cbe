"""Converts between Slurm's hostlist expressions, such as "node[1-3,5],gpu-[01-02]", and node names."""

from __future__ import annotations

import re
from itertools import product

MAX_HOSTS = 65536
"""The most names in one expression, as in Slurm."""

_LONGEST = 60
_LONGEST_NAME = 255
"""Characters of a name, in DNS too. Of longer ones in a foreign journal, 65,536 would fill the memory."""
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def expand(text: str) -> list[str]:
    """The names in `text`, in order. Raises ValueError if it is not a hostlist expression."""
    names: list[str] = []
    for item in _items(text):
        names += _expand_item(item, MAX_HOSTS - len(names))
    return names


def _items(text: str) -> list[str]:
    """`text` split at the commas outside brackets."""
    items, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise ValueError(f"brackets do not match in {_shown(text)}")
        if char == "," and depth == 0:
            items.append(text[start:index])
            start = index + 1
    if depth:
        raise ValueError(f"brackets do not match in {_shown(text)}")
    return [item.strip() for item in [*items, text[start:]] if item.strip()]


def _expand_item(item: str, room: int) -> list[str]:
    pieces = _BRACKETS.split(item)  # text, ranges, text, ranges, …, text
    choices: list[list[str]] = []
    for index, piece in enumerate(pieces):
        choices.append(_numbers(piece, item, room) if index % 2 else [piece])
        room //= len(choices[-1])
    if room < 1:
        raise ValueError(f"more than {MAX_HOSTS} nodes: {_shown(item)}")
    if sum(max(map(len, choice)) for choice in choices) > _LONGEST_NAME:
        raise ValueError(f"a name is longer than {_LONGEST_NAME} characters: {_shown(item)}")
    return ["".join(parts) for parts in product(*choices)]


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def _numbers(ranges: str, item: str, room: int) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{_shown(part)} is not a number or range, in {_shown(item)}")
        first, last = match[1], match[2] or match[1]
        if len(first) > _LONGEST_NAME:
            raise ValueError(f"{_shown(first)} is no number of a node, in {_shown(item)}")
        if int(last) < int(first):
            raise ValueError(f"the range {_shown(part)} runs backwards, in {_shown(item)}")
        if int(last) - int(first) >= room - len(numbers):
            raise ValueError(f"more than {MAX_HOSTS} nodes: {_shown(item)}")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers
