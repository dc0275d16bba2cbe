"""The training script that `slurmopt init --from` names: it is read and perhaps copied, and never changed or run."""

from __future__ import annotations

from pathlib import Path

from slurmopt.errors import InputError, one_line
from slurmopt.scaffold.project import Script
from slurmopt.scaffold.regular_file import read_regular_file
from slurmopt.scaffold.surroundings import is_distributed

_LARGEST = 16 << 20


def given_script(path: Path, folder: Path) -> tuple[Script, dict[str, bytes]]:
    """The script; and name → bytes if it is not below `folder`, and has to be copied there.

    InputError if it is no script."""
    shown = one_line(str(path))
    data = read_regular_file(path, _LARGEST, "a training script", "--from")
    if path.suffix not in (".py", ".sh"):
        raise InputError(f"--from {shown}: valid: a script that ends with .py or .sh")
    if b"\n#SBATCH" in data:
        raise InputError(f"--from {shown} is a batch script; slurmopt import {shown} makes an experiment from it")
    distributed = is_distributed(path)
    try:
        return Script(str(path.resolve().relative_to(folder.resolve())), distributed), {}
    except ValueError:
        return Script(path.name, distributed), {path.name: data}
