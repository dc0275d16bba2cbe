"""Variables in container files: `ENV` of a Dockerfile, `%environment` of an Apptainer definition, and files of
`NAME=value` lines, such as those of enroot and /etc/nccl.conf. What only a build sees (RUN, ARG, %post) is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurmopt.network.lint.names import PATTERN
from slurmopt.network.lint.reading import shell
from slurmopt.network.lint.setting import Setting

_PAIR = re.compile(rf"({PATTERN})=(\"(?:\\.|[^\"\\])*\"|'[^']*'|(?:\\.|[^\s\\])*)")
_OLD_FORM = re.compile(rf"({PATTERN})\s+(.*)")
_LINE = re.compile(rf"\s*(?:export\s+)?({PATTERN})\s*=(.*)")
_KEPT = ("environment", "appenv", "runscript", "startscript", "apprun", "appstart")
"""The sections of a definition that run with the container."""


def dockerfile(text: str, place: str) -> list[Setting]:
    """The variables that images and containers of a Dockerfile have."""
    found, in_env = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip()[:1] == "#":
            continue
        begins = re.match(r"\s*ENV\s+(.*)", line, re.IGNORECASE)
        rest = begins[1] if begins else line
        if begins or in_env:
            old = _OLD_FORM.fullmatch(rest.strip()) if begins and not _PAIR.match(rest) else None
            pairs = [(old[1], old[2])] if old else [(pair[1], pair[2]) for pair in _PAIR.finditer(rest)]
            found += [Setting(name, _plain(value), place, number) for name, value in pairs]
        in_env = bool(begins or in_env) and line.rstrip().endswith("\\")
    return found


def definition(text: str, place: str) -> list[Setting]:
    """The variables of an Apptainer or Singularity definition."""
    return shell.settings("\n".join(_at_run_time(text)), place)


def _at_run_time(text: str) -> Iterator[str]:
    """The lines of the sections that run with the container; the others are empty."""
    kept = False
    for line in text.splitlines():
        header = re.match(r"%(\w+)", line)
        if header is not None:
            kept = header[1].lower() in _KEPT
        yield line if kept and header is None else ""


def lines(text: str, place: str) -> list[Setting]:
    """`NAME=value` on each line."""
    matches = ((number, _LINE.fullmatch(line)) for number, line in enumerate(text.splitlines(), 1))
    return [Setting(match[1], _plain(match[2].strip()), place, number) for number, match in matches if match]


def _plain(value: str) -> str | None:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return None if "$" in value else re.sub(r"\\(.)", r"\1", value)
