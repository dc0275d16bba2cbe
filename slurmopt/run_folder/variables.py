"""Replaces `${oc.env:NAME}` in plain text where the value is needed; the run folder never holds the value."""

from __future__ import annotations

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\\\$\{|\$\{oc\.env:\s*([^,}\s]+)\s*(?:,\s*([^}]*?)\s*)?\}")


class Unset(LookupError):
    """A variable without a default that the environment lacks; its argument is the name."""


def fill(text: str, environ: Mapping[str, str]) -> str:
    """`text` with `${oc.env:NAME}` and `${oc.env:NAME,default}` filled in. Raises Unset."""

    def value(match: re.Match[str]) -> str:
        if match[1] is None:  # an escaped one stays text
            return "${"
        replacement = environ.get(match[1])
        if replacement is None and match[2] is None:
            raise Unset(match[1])
        return replacement if replacement is not None else _unquoted(match[2])

    return _VARIABLE.sub(value, text)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
