"""Replaces `${oc.env:NAME}` in plain text where the value is needed; the run folder never holds the value."""

from __future__ import annotations

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"(?P<slashes>\\*)\$\{(?:oc\.env:\s*(?P<name>[^,}\s]+)\s*(?:,\s*(?P<default>[^}]*?)\s*)?\})?")
_INTERPOLATION = re.compile(r"(\\*)\$\{")
_INTERPOLATION_BUT_VARIABLES = re.compile(r"(\\*)\$\{(?!oc\.env:)")


class Unset(LookupError):
    """A variable without a default that the environment lacks; its argument is the name."""


def fill(text: str, environ: Mapping[str, str]) -> str:
    """`text` with `${oc.env:NAME}` and `${oc.env:NAME,default}` filled in. Raises Unset.

    As in OmegaConf, `${` after a backslash stays text, and each two backslashes before it are one.
    """

    def value(match: re.Match[str]) -> str:
        slashes, name = match["slashes"], match["name"]
        if len(slashes) % 2:
            return match[0][len(slashes) // 2 + 1 :]
        if name is None:
            return match[0]
        replacement = environ.get(name)
        if replacement is None and match["default"] is None:
            raise Unset(name)
        kept = slashes[len(slashes) // 2 :]
        return kept + (replacement if replacement is not None else _unquoted(match["default"]))

    return _VARIABLE.sub(value, text)


def escaped(text: str, but_variables: bool = False) -> str:
    """`text`, which has no interpolations, so that `fill` and OmegaConf give it back as it is. `but_variables`:
    `${oc.env:…}` in it is to be filled in."""
    pattern = _INTERPOLATION_BUT_VARIABLES if but_variables else _INTERPOLATION
    return pattern.sub(lambda match: match[1] * 2 + r"\${", text)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
