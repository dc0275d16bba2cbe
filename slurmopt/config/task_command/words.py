"""Splits a command into words before interpolation, so that an interpolated value stays one word."""

from __future__ import annotations

import shlex
from typing import Any

from slurmopt.errors import ConfigError


def split_words(text: str, key: str = "task.command") -> list[str]:
    """Splits `text` like a shell, without splitting within `${…}`. Raises ConfigError with `key` if quotes or braces
    are unbalanced."""
    hidden, interpolations = _hide_interpolations(text, key)
    try:
        words = shlex.split(hidden)
    except ValueError as error:
        raise ConfigError(f"cannot be split into words: {error}; or write a list", key) from error
    return [_show(word, interpolations) for word in words]


def command_word(value: Any) -> str:
    """Returns a value as a word of a command. A bool is `true` or `false`, as in YAML."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _hide_interpolations(text: str, key: str) -> tuple[str, list[str]]:
    """Returns `text` with each `${…}` replaced by a mark that shlex treats as part of a word, and the `${…}`."""
    parts: list[str] = []
    interpolations: list[str] = []
    position = 0
    while (start := text.find("${", position)) >= 0:
        end = _closing(text, start, key)
        parts += [text[position:start], _mark(len(interpolations))]
        interpolations.append(text[start:end])
        position = end
    return "".join([*parts, text[position:]]), interpolations


def _closing(text: str, start: int, key: str) -> int:
    depth = 0
    for index in range(start, len(text)):
        if text.startswith("${", index):
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return index + 1
    raise ConfigError(f"no closing brace for {text[start : start + 20]!r}", key)


def _mark(number: int) -> str:
    return f"\ue000{number}\ue001"


def _show(word: str, interpolations: list[str]) -> str:
    for number, original in enumerate(interpolations):
        word = word.replace(_mark(number), original)
    return word
