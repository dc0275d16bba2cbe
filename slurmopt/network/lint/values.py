"""Whether a value is one that its variable takes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable

from slurmopt.network.lint.table import Variable

_PATHS = ("LOC", "PIX", "PXB", "PHB", "SYS")
"""The path types by their numbers, the old spelling."""
_BOOLEANS = {
    "torch": ("0", "1", "y", "yes", "t", "true", "n", "no", "f", "false"),
    "libfabric": ("0", "1", "on", "off", "true", "false", "yes", "no"),
    "aws_ofi_nccl": ("0", "1", "true", "false"),
}
_MOST_WORDS = 8
_MOST_DIGITS = 30
"""Of a number; Python refuses to read one of some thousand digits."""


def wrong_value(variable: Variable, value: str) -> tuple[str, str | None] | None:
    """What is wrong with a value, and what it should be if that is known; None: nothing that is known."""
    check = _CHECKS.get(variable.kind)
    return check(variable, value.strip()) if check is not None and value else None


def path_type(number: str) -> str:
    """The word for the number of a path type."""
    return _PATHS[min(int(number[:_MOST_DIGITS]), len(_PATHS) - 1)]


def _switch(variable: Variable, value: str) -> tuple[str, str | None] | None:
    number = _as_int(value)
    if number in (0, 1):
        return None
    likely = {"true": "1", "yes": "1", "on": "1", "false": "0", "no": "0", "off": "0"}.get(value.lower())
    return "is not valid; valid: 0, 1", likely


def _bool(variable: Variable, value: str) -> tuple[str, str | None] | None:
    valid = _BOOLEANS[variable.library]
    return None if value.lower() in valid else (f"is not valid; valid: {', '.join(valid)}", None)


def _int(variable: Variable, value: str) -> tuple[str, str | None] | None:
    number = _as_int(value)
    if number is None:
        return "is no whole number", None
    if variable.words:
        return None if value in variable.words else (f"is not valid; valid: {', '.join(variable.words)}", None)
    return _in_range(variable, number)


def _float(variable: Variable, value: str) -> tuple[str, str | None] | None:
    try:
        return _in_range(variable, float(value))
    except ValueError:
        return "is no number", None


def _in_range(variable: Variable, number: float) -> tuple[str, str | None] | None:
    low, high = variable.range
    if (low is None or number >= low) and (high is None or number <= high):
        return None
    bounds = f"{low} or more" if high is None else f"up to {high}" if low is None else f"{low} to {high}"
    return f"is not valid; valid: {bounds}", None


def _size(variable: Variable, value: str) -> tuple[str, str | None] | None:
    if (_as_int(value) or 0) > 0 or value == "0":
        return None
    unit = re.fullmatch(r"(\d+) ?([kKmMgG])i?[bB]?", value)
    if variable.library == "libfabric":
        return None
    is_known = unit is not None and len(unit[1]) <= _MOST_DIGITS
    likely = str(int(unit[1]) << {"k": 10, "m": 20, "g": 30}[unit[2].lower()]) if unit and is_known else None
    return "is no number of bytes", likely


def _words(variable: Variable, value: str) -> tuple[str, str | None] | None:
    text = value[1:] if variable.negatable and value[:1] == "^" else value
    return _all_known(variable, value, [word.strip() for word in text.split(",")] if variable.list else [text])


def _all_known(variable: Variable, value: str, words: Iterable[str]) -> tuple[str, str | None] | None:
    known = {word.lower(): word for word in variable.words}
    for word in words:
        if word.lower() not in known:
            valid = ", ".join(variable.words) if len(variable.words) <= _MOST_WORDS else "the words of its page"
            close = difflib.get_close_matches(word.lower(), known, n=1)
            likely = value.replace(word, known[close[0]]) if close and word else None
            return f"has {word!r}, which is not valid; valid: {valid}", likely
    return None


def _path_type(variable: Variable, value: str) -> tuple[str, str | None] | None:
    if value.isdecimal():
        return "is the old spelling by number, whose meaning changes", path_type(value)
    return _words(variable, value)


def _functions(variable: Variable, value: str) -> tuple[str, str | None] | None:
    """`ring,tree;allreduce:^tree`: words, or for each collective."""
    words = []
    for part in filter(None, value.split(";")):
        listed = part.rpartition(":")[2].strip()
        words += [word.strip() for word in listed.removeprefix("^").split(",")]
    return _all_known(variable, value, words)


def _interfaces(variable: Variable, value: str) -> tuple[str, str | None] | None:
    """`^=docker0,lo`: `^` excludes and `=` is exact for the whole list, once and in this order."""
    names = re.sub(r"^\^?=?", "", value).split(",")
    repeated = [name for name in names if name[:1] in ("^", "=")]
    if repeated:
        return "has ^ or = inside of the list; they stand once, at its beginning, and hold for all", None
    return _plain_names(names)


def _interface_names(variable: Variable, value: str) -> tuple[str, str | None] | None:
    return None if value[:1] in ("^", "=") else _plain_names(value.split(","))


def _plain_names(names: list[str]) -> tuple[str, str | None] | None:
    if any("*" in name or "?" in name for name in names):
        return "has a wildcard; a name stands for all that begin with it", ",".join(name.rstrip("*?") for name in names)
    if any(not name or name != name.strip() or " " in name for name in names):
        return "has an empty name or a blank; names are separated by commas alone", None
    return None


def _path(variable: Variable, value: str) -> tuple[str, str | None] | None:
    return ("begins with ~, which is not expanded", None) if value[:1] == "~" else None


def _as_int(value: str) -> int | None:
    if len(value) > _MOST_DIGITS:
        return None
    try:
        return int(value, 0)
    except ValueError:
        return int(value) if re.fullmatch(r"[+-]?\d+", value) else None


_CHECKS: dict[str, Callable[[Variable, str], tuple[str, str | None] | None]] = {
    "switch": _switch,
    "bool": _bool,
    "int": _int,
    "float": _float,
    "size": _size,
    "words": _words,
    "path_type": _path_type,
    "functions": _functions,
    "interfaces": _interfaces,
    "interface_names": _interface_names,
    "path": _path,
}
KINDS = frozenset({*_CHECKS, "free"})
