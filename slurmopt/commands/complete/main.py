"""`slurmopt _complete LINE`: what could stand where the line ends, a candidate a line. Shells call it at every tab.

`slurmopt _complete --shell LINE` is what the scripts of `slurmopt completion` call. Its first line says what else the
shell should offer: `none`, `files` or `folders`. Each further line is a candidate, a tab, and its description.

Slurm is never asked: what the cluster has is known from the last command that asked.
"""

from __future__ import annotations

import shlex

from slurmopt.commands import COMMANDS
from slurmopt.commands.complete import arguments, command_model
from slurmopt.commands.complete.answer import FILES, Answer, Candidate
from slurmopt.errors import SlurmoptError

_OF_ALL = (
    ("help", "the options of a command"),
    ("--help", "all commands"),
    ("--version", "the version of slurmopt"),
)


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    for_shell, line = argv[:1] == ["--shell"], argv[-1] if argv else ""
    try:
        found = answer(line)
    except (SlurmoptError, OSError, ValueError, RecursionError):  # a tab is no place to complain: the command will
        found = Answer()
    if for_shell:
        print(found.files)
    for one in found.candidates:
        print(f"{one.word}\t{one.text}" if for_shell else one.word)
    return 0


def candidates(line: str) -> list[str]:
    """The words that could stand where `line` ends."""
    return [one.word for one in answer(line).candidates]


def answer(line: str) -> Answer:
    """What could stand where `line` ends."""
    typed, current = _split(line)
    if "--" in typed:
        return Answer(files=FILES)
    return _after(typed[1:], current).beginning_with(current)


def _split(line: str) -> tuple[list[str], str]:
    """The words before the last one, and what is there of that; it is empty after a blank."""
    current = "" if not line or line[-1].isspace() else line.split()[-1]
    before = line[: len(line) - len(current)]
    try:
        return shlex.split(before), current
    except ValueError:  # the cursor is within quotes
        return before.split(), current


def _after(typed: list[str], current: str) -> Answer:
    """Follows the names of commands at the beginning; what comes then is for the last one."""
    helps = typed[:1] == ["help"]
    rest = typed[1:] if helps else typed
    module, table, known = None, {name: list(entry) for name, entry in COMMANDS.items()}, []
    while rest and table:
        if rest[0] not in table:
            return Answer()
        module = table[rest[0]][0]
        model = command_model.load(module)
        table, known, rest = model["commands"], model["arguments"], rest[1:]
    if table:
        named = [Candidate(name, text) for name, (_, text) in table.items()]
        others = [] if typed else [Candidate(*one) for one in _OF_ALL if current or one[0] == "help"]
        return Answer([*named, *others])
    return Answer() if helps or module is None else arguments.answer(module, known, rest, current)
