"""Reads a script that a user names. Nothing is executed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from slurmopt.errors import InputError, one_line, why_failed


def read_regular_file(path: Path, largest: int, what: str, option: str = "") -> bytes:
    """The bytes of a regular file of at most `largest` bytes. `what`: what it is to be, such as "a batch script".
    `option`: that which names it, for the error, such as "--from".

    Raises InputError. A pipe or a device is refused without waiting for it.
    """
    name = one_line(str(path))
    shown = f"{option} {name}" if option else name
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InputError(f"{shown} is no regular file; valid: {what}")
            data = file.read(largest + 1)
    except FileNotFoundError:
        raise InputError(f"{option}{': ' if option else ''}there is no {name!r} in {Path.cwd()}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{shown} cannot be read: {one_line(why_failed(error))}") from error
    if len(data) > largest:
        raise InputError(f"{shown} has more than {largest >> 20} MiB; that is no {what.partition(' ')[2]}")
    return data
