"""The training script that `slurmopt init --from` names: it is read and perhaps copied, and never changed or run."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from slurmopt.errors import InputError, one_line, why_failed
from slurmopt.scaffold.project import Script
from slurmopt.scaffold.surroundings import is_distributed

_LARGEST = 16 << 20


def given_script(path: Path, folder: Path) -> tuple[Script, dict[str, bytes]]:
    """The script; and name → bytes if it is not below `folder`, and has to be copied there.

    InputError if it is no script."""
    shown = one_line(str(path))
    data = _bytes(path, shown)
    if path.suffix not in (".py", ".sh"):
        raise InputError(f"--from {shown}: valid: a script that ends with .py or .sh")
    if b"\n#SBATCH" in data:
        raise InputError(f"--from {shown} is a batch script; slurmopt import {shown} makes an experiment from it")
    distributed = is_distributed(path)
    try:
        return Script(str(path.resolve().relative_to(folder.resolve())), distributed), {}
    except ValueError:
        return Script(path.name, distributed), {path.name: data}


def _bytes(path: Path, shown: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InputError(f"--from {shown} is no regular file; valid: a training script")
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        raise InputError(f"--from: there is no {shown!r} in {Path.cwd()}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"--from {shown} cannot be read: {one_line(why_failed(error))}") from error
    if len(data) > _LARGEST:
        raise InputError(f"--from {shown} has more than {_LARGEST >> 20} MiB; that is no script")
    return data
