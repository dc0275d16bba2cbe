"""Commands that take from a file the line of the array task: `sed -n "${ID}p" params.txt` and the like."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurmopt.importing.shell.not_known import NotKnown

_NUMBER = r"<(?P<number>[^<>]+)>"
_FILE = r"(?P<file>[^\s|;&<>]+|<\w+>)"
_FORMS = (
    rf"sed\s+-n\s+-?e?\s*{_NUMBER}\s?\{{?p;?q?\}}?\s+{_FILE}",
    rf"sed\s+{_NUMBER}q;d\s+{_FILE}",
    rf"awk\s+NR\s*==\s*{_NUMBER}\s+{_FILE}",
    rf"head\s+(?:-n\s*|-){_NUMBER}\s+{_FILE}\s*\|\s*tail\s+(?:-n\s*|-)1",
)
_COLUMN = re.compile(r"\|\s*(?:awk\s+\{\s*print\s+<(?P<awk>\d+)>\s*;?\s*\}|cut\s+(?P<cut>-[df].*))$")


@dataclass(frozen=True)
class ChosenLine:
    """What such a command takes: a line of a file, or a column of the line."""

    name: str
    """The file; empty where a variable has its name."""
    variable: str
    number: str
    """The arithmetic expression of the line's number, from 1."""
    column: re.Match[str] | None = None

    def line(self, lines: list[str], number: int) -> str:
        """Raises NotKnown if there is no such line."""
        if not 1 <= number <= len(lines):
            raise NotKnown(f"{self.name or '$' + self.variable} has no line {number}")
        return _column_of(lines[number - 1], self.column) if self.column else lines[number - 1]


def chosen_lines(command: str) -> ChosenLine | None:
    """What the command takes; None if it is no such command."""
    plain = _normalised(command)
    column = _COLUMN.search(plain)
    taken = plain[: column.start()].strip() if column else plain
    match = next(filter(None, (re.fullmatch(form, taken) for form in _FORMS)), None)
    if match is None:
        return None
    file, variable = match["file"], ""
    if file.startswith("<"):
        file, variable = "", file[1:-1]
    return ChosenLine(file, variable, match["number"], column)


def _normalised(command: str) -> str:
    """Without quotes, and with `<…>` around variables and arithmetic."""
    text = re.sub(r"\$\(\((.*?)\)\)", r"<\1>", command)
    text = re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda match: f"<{match[1] or match[2]}>", text)
    text = re.sub(r"<([^<>]*)<(\w+)>([^<>]*)>", r"<\1\2\3>", text)  # a variable inside arithmetic
    quotes = r"\"" if "cut" in text else r"[\"']"  # the quotes of cut's -d ',' are needed
    return " ".join(re.sub(quotes, "", text).split())


def _column_of(line: str, column: re.Match[str]) -> str:
    if column["awk"]:
        words, at = line.split(), int(column["awk"])
        return line if not at else words[at - 1] if at <= len(words) else ""
    options = re.fullmatch(r"(?:-d\s*'?(.)'?\s+)?-f\s*(\d+)(?:\s+-d\s*'?(.)'?)?", column["cut"].strip())
    if options is None:
        raise NotKnown("this use of cut")
    pieces, at = line.split(options[1] or options[3] or "\t"), int(options[2])
    return pieces[at - 1] if 1 <= at <= len(pieces) else ""
