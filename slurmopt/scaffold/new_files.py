"""Writes new files: all of them or none, and never over one that is there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from slurmopt.errors import FolderError, InputError, one_line, why_failed


def refuse_existing(folder: Path, names: Mapping[str, str]) -> None:
    """Raises InputError that names the files which are there already, links that lead nowhere included."""
    there = [name for name in names if os.path.lexists(folder / name)]
    if there:
        raise InputError(f"{', '.join(map(one_line, there))} in {folder} exists already; nothing was written")


def write_new(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Writes the files. InputError if one exists; FolderError if one cannot be written. What was written is removed then."""
    refuse_existing(folder, texts)
    written: list[Path] = []
    try:
        for name, text in texts.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "x", encoding="utf-8", newline="") as file:
                written.append(path)
                file.write(text)
    except OSError as error:
        for path in written:
            with contextlib.suppress(OSError):
                path.unlink()
        if isinstance(error, FileExistsError):
            raise InputError(f"{error.filename} exists already; nothing was written") from error
        raise FolderError(f"{error.filename or folder} cannot be written: {why_failed(error)}") from error
    return written
