"""Pickles that cross from the launch to the jobs and back, read only where nobody else can have written them.

cloudpickle writes them: the function under `@hydra.main` mostly lies in `__main__`, which the job cannot import, so it
has to travel by value. Reading is plain pickle, which runs what it reads: hence the checks.
"""

from __future__ import annotations

import os
import pickle
import stat
import zlib
from pathlib import Path
from typing import Any

from slurmopt.errors import JobError


def dumps(value: Any) -> bytes:
    """`value` pickled, and compressed, being mostly Hydra's configs. Raises what cloudpickle raises."""
    import cloudpickle

    return zlib.compress(cloudpickle.dumps(value), level=1)


def loads(content: bytes) -> Any:
    """The value of `dumps`. Only for what `read` has let through."""
    return pickle.loads(zlib.decompress(content))  # noqa: S301


def place(path: Path, content: bytes) -> None:
    """Writes `content` for its owner alone, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def read(path: Path) -> bytes:
    """The bytes of a file that only this user can have written. JobError where that is not so."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise JobError(f"{path} is no regular file; it is not read")
        _refuse_strangers(path, facts)
        _refuse_strangers(path.parent, path.parent.stat())
        return file.read()


def _refuse_strangers(path: Path, facts: os.stat_result) -> None:
    if facts.st_uid != os.geteuid():
        raise JobError(f"{path} belongs to user {facts.st_uid}, not to you ({os.geteuid()}); it is not unpickled")
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise JobError(f"{path} can be written by others (mode {facts.st_mode & 0o777:o}); it is not unpickled")
