"""Runs a command, and turns errors into lines on standard error and an exit status.

Exit statuses: 0 done · 1 it failed · 2 bad input · 124 waited too long · 130 interrupted · 141 nobody reads the output
any more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from slurmopt.errors import InputError, SlurmoptError, one_line, with_place

_LONGEST = 1000
"""Characters of an error; somebody's value of 70,000 would hide what is wrong with it."""


def guarded(work: Callable[[list[str]], int], argv: list[str]) -> int:
    """Calls `work(argv)`; errors that slurmopt or the system raised become their lines on stderr and an exit status."""
    try:
        _check_folder()
        status = work(argv)
        sys.stdout.flush()
        return status
    except SlurmoptError as error:
        return _say(str(error), error.exit_status)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Python flushes stdout once more at exit, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _say(with_place(error), 1)
    except RecursionError:  # configs, JSON and overrides of some thousand brackets, wherever they are looked at
        return _say("a config, an override or a file of the run folder is nested too deeply", InputError.exit_status)


def _check_folder() -> None:
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise InputError("the current folder no longer exists; cd to one that does") from error


def _say(message: str, status: int) -> int:
    for line in message.splitlines() or [""]:
        shown = one_line(line)
        print(f"slurmopt: error: {shown if len(shown) <= _LONGEST else shown[:_LONGEST] + ' …'}", file=sys.stderr)
    return status
