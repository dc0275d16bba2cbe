"""The words of a command as `task.command`: one line where that is safe, else a list."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from slurmopt.importing.scope import ENV, SYMBOL, Value

_INTERPOLATION = re.compile(r"\$\{[^{}]*\}")


def literal(text: str) -> str:
    """Text in which OmegaConf finds no interpolation."""
    return re.sub(r"(\\*)\$\{", lambda match: match[1] * 2 + r"\${", text)


def value_text(value: Value, key: Callable[[str], str]) -> str:
    """A value with `${key}` for its symbols and `${oc.env:NAME}` for variables of the job."""
    texts = []
    for piece in value:
        if piece.kind == SYMBOL:
            texts.append(f"${{{key(piece.text)}}}")
        elif piece.kind == ENV:
            texts.append(f"${{oc.env:{piece.text}}}")
        else:
            texts.append(literal(piece.text))
    return "".join(texts)


def command(words: list[str]) -> str | list[str]:
    """One line, if the words can be split from it again; else the list."""
    if any("\\" in word or not word.isprintable() for word in words):
        return words
    line = " ".join(map(_quoted, words))
    return line if len(line) <= 400 else words


def _quoted(word: str) -> str:
    plain = _INTERPOLATION.sub("x", word)
    if shlex.quote(plain) == plain:
        return word
    return f'"{word}"' if not re.search(r"[\"\\$`]", plain) else "'" + word.replace("'", "'\"'\"'") + "'"
