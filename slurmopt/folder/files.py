"""Writing small files so that a reader never sees half of one."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

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


def read_text(path: Path) -> str:
    """The text of a small file. ValueError for what is no regular file (a FIFO would be waited for, a device never
    ends), for a huge one, and for one that is not UTF-8."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LARGEST:
            raise ValueError(f"{path} is no regular file of at most {_LARGEST} bytes")
        return file.read(_LARGEST).decode("utf-8")
