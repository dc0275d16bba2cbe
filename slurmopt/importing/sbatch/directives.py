"""The `#SBATCH` lines of a script, as sbatch reads them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from slurmopt.errors import InputError
from slurmopt.importing.sbatch.sbatch_options import split_option, takes_next


@dataclass(frozen=True)
class Directive:
    """One option of sbatch."""

    line: int
    name: str
    """The long name, without dashes; what was typed, if sbatch has none."""
    value: str | None
    text: str
    """As it is written in the script."""


@dataclass(frozen=True)
class Ignored:
    """A line that looks like directives, but is not read by sbatch."""

    line: int
    text: str
    why: str


def directives(text: str) -> tuple[list[Directive], list[Ignored]]:
    """The options, and what sbatch ignores: lines after the first command, and lines that only look like them."""
    found: list[Directive] = []
    ignored: list[Ignored] = []
    begun = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("#SBATCH"):
            if begun:
                ignored.append(Ignored(number, line, "sbatch ignores it after the first command"))
            else:
                found += _options(number, line)
        elif re.match(r"#+\s*SBATCH\s+-|\s+#SBATCH\s", line):
            ignored.append(Ignored(number, line, "sbatch takes it for a comment"))
        elif re.match(r"#(PBS|BSUB|COBALT|\$)\s", line):
            ignored.append(Ignored(number, line, "not a directive of Slurm"))
        begun = begun or bool(line.strip() and not line.lstrip().startswith("#"))
    return found, ignored


def _options(number: int, line: str) -> list[Directive]:
    try:
        words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
    except ValueError as error:
        raise InputError(
            f"line {number}: {line.strip()!r} has no closing quote; sbatch cannot read it either"
        ) from error
    if words[:1] in (["hetjob"], ["packjob"]) or ":" in words:
        raise InputError(f"line {number}: heterogeneous jobs are not supported; import one script for each component")
    return _paired(number, line, words)


def _paired(number: int, line: str, words: list[str]) -> list[Directive]:
    found = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word in ("-", "--"):
            raise InputError(f"line {number}: {word!r} in {line.strip()!r} is no option; valid: --option=value")
        name, value = split_option(word)
        if takes_next(word):
            value = next(rest, None)
        text = (
            line.strip()
            if len(words) <= 2
            else f"#SBATCH {word}{'' if value is None or value in word else ' ' + value}"
        )
        found.append(Directive(number, name, value, text))
    return found
