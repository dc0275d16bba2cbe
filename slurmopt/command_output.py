"""What a command says: JSON on standard output where `--json` asks for it, warnings and errors on standard error.

`--json` prints one object on one line, with the same keys on every command:

    command    the command, such as "status" or "checkpoint list"
    data       its answer; null where an error came before it
    warnings   a list of texts: the warnings on standard error
    errors     a list of objects with `type`, the name of an exception's class, and `message`, one line

Standard error and the exit status are as without `--json`. Keys are added in later versions, never renamed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

_LONGEST = 1000
"""Characters of an error; somebody's value of 70,000 would hide what is wrong with it."""


class CommandOutput:
    """The output of the command that this process runs."""

    def __init__(self) -> None:
        self.begin("", False)

    def begin(self, command: str, as_json: bool) -> None:
        """Begins the output of another command."""
        self.command, self.as_json, self._is_printed = command, as_json, False
        self._warnings: list[str] = []
        self._errors: list[dict[str, str]] = []

    def name(self, command: str) -> None:
        """Gives the command its full name, where words were left out."""
        self.command = command

    def warn(self, message: str) -> None:
        """Says that something did not work, or needs the user's attention, and the command goes on."""
        print(f"slurmopt: {message}", file=sys.stderr, flush=True)
        self._warnings.append(message)

    def fail(self, message: str, kind: str) -> None:
        """Says why the command fails, wholly or for one of its arguments. `kind`: the class of the exception."""
        shown = message if len(message) <= _LONGEST else f"{message[:_LONGEST]} …"
        print(f"slurmopt: error: {shown}", file=sys.stderr)
        self.note_error(shown, kind)

    def note_error(self, message: str, kind: str) -> None:
        """Has an error that needs no line on standard error among those of `--json`."""
        self._errors.append({"type": kind, "message": message})

    def expect_json(self) -> None:
        """The config asks for JSON, not an option of the command line."""
        self.as_json = True

    def print_json(self, data: Any) -> None:
        """Prints the answer. Numbers in it that are not finite become null."""
        self.print_pieces([dumped(data)])

    def print_pieces(self, pieces: Iterable[str]) -> None:
        """Prints an answer that is JSON already, in pieces: some are too large for the memory."""
        import json

        self._is_printed = True
        sys.stdout.write(f'{{"command": {json.dumps(self.command)}, "data": ')
        sys.stdout.writelines(pieces)
        sys.stdout.write(f', "warnings": {json.dumps(self._warnings)}, "errors": {json.dumps(self._errors)}}}\n')
        sys.stdout.flush()

    def end(self) -> None:
        """Prints the errors of a command that has come to no answer."""
        if self.as_json and self._errors and not self._is_printed:
            self.print_json(None)


_of_this_process = CommandOutput()
begin, name, end = _of_this_process.begin, _of_this_process.name, _of_this_process.end
expect_json = _of_this_process.expect_json
warn, fail, note_error = _of_this_process.warn, _of_this_process.fail, _of_this_process.note_error
print_json, print_pieces = _of_this_process.print_json, _of_this_process.print_pieces


def dumped(value: Any) -> str:
    """JSON of a value; a number that is not finite is null."""
    import json  # most commands need none: it would take a tenth of the time of --help

    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and value - value != 0 else value
