"""The words of a command as `task.command`: one line where that is safe, else a list."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from slurmopt.importing.shell.not_known import NotKnown
from slurmopt.importing.shell.scope import ENV, SYMBOL, TEXT, Piece, Value

_INTERPOLATION = re.compile(r"\$\{[^{}]*\}")


def literal(text: str) -> str:
    """Text in which OmegaConf finds no interpolation. Raises NotKnown if it has `${`, which a config cannot keep."""
    if "${" in text:
        raise NotKnown("it has a text with ${, which a config would take for one of its own keys")
    return text


def without_braces(line: str) -> str:
    """A line of bash with `$NAME` for `${NAME}` and `${NAME:-}`, and `${oc.env:NAME,default}`, which slurmopt writes as
    `${NAME-default}`, for `${NAME:-default}`. Raises NotKnown for other expansions in braces."""

    def plain(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if default:
            return f"${{oc.env:{name},{default}}}"
        return f'${name}""' if re.match(r"[\w\[]", line[match.end() :]) else f"${name}"

    changed = re.sub(r"\$\{([A-Za-z_]\w*)(?::?-([\w./-]*))?\}", plain, line)
    if "${" in re.sub(r"\$\{oc\.env:\w+,[\w./-]*\}", "", changed):
        raise NotKnown(
            f"it has {changed[changed.index('${') :][:30]!r}, which a config would take for one of its own keys"
        )
    return changed


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


def shell_words(words: list[Value]) -> list[Value]:
    """The words of a command; in those that a shell gets with -c, `${NAME}` is written as `$NAME`."""
    texts = [word[0].text if word else "" for word in words[:2]]
    if len(words) < 3 or texts[0].rpartition("/")[2] not in ("bash", "sh") or not re.fullmatch(r"-[a-z]*c", texts[1]):
        return words
    script = tuple(Piece(TEXT, without_braces(piece.text)) if piece.kind == TEXT else piece for piece in words[2])
    if any("oc.env" in piece.text for piece in script if piece.kind == TEXT):
        raise NotKnown("an expansion with a default in the command")
    return [*words[:2], script, *words[3:]]


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
