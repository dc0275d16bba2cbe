"""Overrides as words of a command line."""

from __future__ import annotations


def merged(words: list[str], overrides: list[str]) -> list[str]:
    """`words` with `overrides` for those of the same keys, whose + they take over."""
    before = {key: plus for plus, key in map(plus_and_key, words)}
    after = {plus_and_key(word)[1] for word in overrides}
    kept = [word for word in words if plus_and_key(word)[1] not in after]
    return kept + [before.get(plus_and_key(word)[1], "") + word for word in overrides]


def plus_and_key(word: str) -> tuple[str, str]:
    """The + or ++ of an override, and its key."""
    key = word.partition("=")[0].lstrip("+")
    return word[: len(word) - len(word.lstrip("+"))], key
