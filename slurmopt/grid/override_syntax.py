"""Writes a value so that Hydra's override grammar reads it back: `lr=0.1`, `'name=\\'a b\\''`, `sizes=[1,2]`."""

from __future__ import annotations

import re
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/.][A-Za-z0-9_/.-]*")
_SPECIAL = re.compile(r"null|true|false|[+-]?(?:nan|inf)", re.IGNORECASE)
_DIGITS = r"[0-9](?:_?[0-9])*"
_WHOLE = r"(?:0|[1-9](?:_?[0-9])*)"
INT = re.compile(rf"[+-]?{_WHOLE}")
FLOAT = re.compile(rf"[+-]?(?:(?:{_WHOLE}?\.{_DIGITS}|{_WHOLE}\.)(?:[eE][+-]?{_DIGITS})?|{_WHOLE}[eE][+-]?{_DIGITS})")
_ESCAPED = re.compile(r"[\\()\[\]{}:=, \t]")
_BEFORE_QUOTE = re.compile(r"(\\+)(?='|\Z)")


def override_value(value: Any) -> str:
    """The text after `=`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(override_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_key(key)}:{override_value(item)}" for key, item in value.items()) + "}"
    return _text(str(value))


def _text(text: str) -> str:
    """The text, bare where Hydra can only read it as text, else in quotes, in which a backslash counts only before a
    quote."""
    if _PLAIN.fullmatch(text) and is_text(text):
        return text
    doubled = _BEFORE_QUOTE.sub(r"\1\1", text)
    return "'" + doubled.replace("'", "\\'") + "'"


def _key(key: Any) -> str:
    """A key of a mapping, which Hydra's grammar accepts only without quotes."""
    return _ESCAPED.sub(r"\\\g<0>", key) if isinstance(key, str) else override_value(key)


def is_text(text: str) -> bool:
    """Whether Hydra reads the bare word as text: not as a number such as `.5` (`007` is text), `true`, `null` or
    `inf`."""
    return not (_SPECIAL.fullmatch(text) or INT.fullmatch(text) or FLOAT.fullmatch(text))
