"""Reading files that a foreign hand may have put there, and writing small ones so that a reader never sees half."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

_LARGEST = 16 * 2**20


def replace_text(path: Path, text: str, mode: int = 0o640) -> None:
    """Writes `text` beside `path` and renames it into place. The run folder itself keeps strangers out."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def replace_json(path: Path, value: Any) -> None:
    """`replace_text` of one JSON document; what JSON does not know is written as its text."""
    replace_text(path, json.dumps(value, default=str) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in `path`, or None where there is none yet, or where a foreign hand left something else."""
    try:
        value = json.loads(read_text(path))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class NotRegular(OSError):
    """A FIFO, which would be waited for, a device, which may never end, or a folder."""


def open_regular(path: str | Path) -> BinaryIO:
    """Opens a file to read its bytes. OSError; NotRegular for what is none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise NotRegular(errno.EINVAL, "it is no regular file", str(path))


def read_script(path: Path) -> str:
    """The text of a job script; bytes that are no UTF-8 are kept as `replace_text` writes them again. OSError."""
    with open_regular(path) as file:
        return file.read().decode("utf-8", "surrogateescape")


def read_text(path: Path) -> str:
    """The text of a small file. ValueError for what is no regular file, for a huge one and for one that is no UTF-8."""
    try:
        file = open_regular(path)
    except NotRegular as error:
        raise ValueError(f"{path} is no regular file") from error
    with file:
        if os.fstat(file.fileno()).st_size > _LARGEST:
            raise ValueError(f"{path} has more than {_LARGEST} bytes")
        return file.read(_LARGEST).decode("utf-8")
