"""Checks of values that several groups use. Each raises ConfigError with the key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from slurmopt.errors import ConfigError, one_line

AUTO_OFF = ("auto", "off")
"""The values of an option that is applied where it is suitable (`auto`) or not at all (`off`)."""

_COMPUTED = (
    *("BASHOPTS", "BASHPID", "BASH_VERSINFO", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "HISTCMD", "LINENO", "OPTIND"),
    *("PPID", "RANDOM", "SECONDS", "SHELLOPTS", "SRANDOM", "UID", "FUNCNEST", "IFS", "SLURM_JOB_NUM_NODES"),
)
"""Variables that bash or the job script evaluates as arithmetic, where `a[$(command)]` runs the command, or that bash
does not let anybody set; and those that change how bash reads the job script."""


def environment_variables(variables: Iterable[object], key: str) -> None:
    """Raises ConfigError for a name that is not an environment variable, or that bash, Slurm or slurmopt sets."""
    for name in map(str, variables):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError("is not a name for an environment variable", f"{key}.{one_line(name)}")
        if name.upper().startswith("SLURMOPT_"):
            raise ConfigError("is reserved for slurmopt", f"{key}.{name}")
        if name in _COMPUTED:
            raise ConfigError("is set by bash or Slurm in the job; valid: any other name", f"{key}.{name}")


def one_of(value: str, valid: Iterable[str], key: str) -> None:
    """Raises ConfigError unless `value` is one of `valid`."""
    if value not in (choices := list(valid)):
        message = f"{value!r} is not valid{did_you_mean(value, choices)}; valid: {', '.join(choices)}"
        raise ConfigError(message, key, choices)


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """Returns ' (did you mean X?)' if one of `valid` is similar to `word`, else an empty string."""
    close = difflib.get_close_matches(word, list(valid), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def at_least(value: int | float | None, least: int, key: str) -> None:
    """Raises ConfigError unless `value` is None or at least `least`."""
    if value is not None and value < least:
        raise ConfigError(f"{value} is too few; valid: {least} or more", key)


def whole_number(value: Any, least: int, key: str, most: int | None = None) -> None:
    """Raises ConfigError unless `value` is an int from `least` to `most`. Needed in groups that are also built without
    OmegaConf, which checks the types otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"{least} or more" if most is None else f"{least} to {most}"
        raise ConfigError(f"{value!r} is not valid; valid: a whole number, {bounds}", key)


def true_or_false(value: Any, key: str) -> None:
    """Raises ConfigError unless `value` is a bool."""
    if not isinstance(value, bool):
        raise ConfigError(f"{value!r} is not valid; valid: true, false", key, ["true", "false"])


def text_or_null(value: Any, key: str) -> None:
    """Raises ConfigError unless `value` is None or one non-empty line of text."""
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigError(f"{value!r} is not valid; valid: a text, or null", key)
    one_line_text(value, key)


def readable(value: Any, parse: Callable[[Any], Any], key: str) -> None:
    """Raises ConfigError if `parse(value)` raises ValueError, with the same message. None is not parsed."""
    if value is None:
        return
    try:
        parse(value)
    except ValueError as error:
        raise ConfigError(str(error), key) from error


def at_most_one(values: Mapping[str, Any], prefix: str) -> None:
    """Raises ConfigError if more than one of these mutually exclusive options is not None. `prefix`: their group."""
    set_keys = [f"{prefix}.{name}" for name, value in values.items() if value is not None]
    if len(set_keys) > 1:
        raise ConfigError(f"only one of these can be set: {', '.join(set_keys)}")


def one_line_text(value: str | None, key: str) -> None:
    """Raises ConfigError unless `value` is None or one line of printable UTF-8, as the job script requires."""
    if value is None:
        return
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ConfigError("is not valid UTF-8", key) from error
    if not value.isprintable():
        raise ConfigError(f"has control characters: {value!r}; valid: one line of printable text", key)
