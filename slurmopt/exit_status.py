"""Runs a command, and turns errors into lines on standard error and an exit status.

Exit statuses: 0 done · 1 it failed · 2 bad input · 124 waited too long · 130 interrupted · 141 nobody reads the output
any more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from slurmopt import command_output
from slurmopt.errors import InputError, SlurmoptError, one_line, with_place

_NOT_READ = 141
_ASKS = {"--json", "launch.json=true"}
"""Words that ask for JSON."""


def guarded(work: Callable[[list[str]], int], argv: list[str], command: str) -> int:
    """Calls `work(argv)`, which runs `command`; errors that slurmopt or the system raised become their lines on stderr,
    the errors of `--json`, and an exit status."""
    _open_closed_streams()
    own = argv[: argv.index("--")] if "--" in argv else argv
    command_output.begin(command, as_json=bool(_ASKS & {*own}))
    try:
        status = _status(work, argv)
        command_output.end()
        return status
    except BrokenPipeError:
        _discard_output()
        return _NOT_READ
    except OSError as error:  # the output could not be written
        _discard_output()
        return _fail(with_place(error), error, 1)


def _status(work: Callable[[list[str]], int], argv: list[str]) -> int:
    try:
        _check_folder()
        status = work(argv)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        raise
    except SlurmoptError as error:
        return _fail(str(error), error, error.exit_status)
    except KeyboardInterrupt as error:
        command_output.note_error("interrupted", type(error).__name__)
        return 130
    except OSError as error:
        return _failed(error)
    except RecursionError as error:  # configs, JSON and overrides of some thousand brackets, wherever they are read
        message = "a config, an override or a file of the run folder is nested too deeply"
        return _fail(message, error, InputError.exit_status)


def _open_closed_streams() -> None:
    """Where a process begins without its output (`>&-`), Python has None for it, and the next file that is opened takes
    its number."""
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    streams = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
    for number, (name, mode) in enumerate(streams):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115  until the process ends


def _failed(error: OSError) -> int:
    try:
        sys.stdout.flush()
    except OSError:  # it was the output that could not be written
        _discard_output()
    return _fail(with_place(error), error, 1)


def _discard_output() -> None:
    """Python flushes stdout once more at exit, which would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check_folder() -> None:
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise InputError("the current folder no longer exists; cd to one that does") from error


def _fail(message: str, error: BaseException, status: int) -> int:
    for line in message.splitlines() or [""]:
        command_output.fail(one_line(line), type(error).__name__)
    return status
