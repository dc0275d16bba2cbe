"""Writes new files: all of them or none, and never over one that is there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from slurmopt.errors import FolderError, InputError, one_line, why_failed


def check_folder(folder: Path) -> None:
    """Raises InputError if something other than a folder has that name."""
    if os.path.lexists(folder) and not folder.is_dir():
        raise InputError(f"{one_line(str(folder))} is no folder; nothing was written")


def refuse_existing(folder: Path, names: Iterable[str]) -> None:
    """Raises InputError that names the files which are there already, links that lead nowhere included."""
    there = [name for name in names if os.path.lexists(folder / name)]
    if there:
        verb = "exists" if len(there) == 1 else "exist"
        place = one_line(str(folder.resolve()))
        raise InputError(f"{one_line(', '.join(there))} {verb} already in {place}; nothing was written")


def write_new(
    folder: Path,
    texts: Mapping[str, str],
    copies: Mapping[str, bytes] | None = None,
    private: Collection[str] = (),
) -> None:
    """Writes texts, and bytes as they are; those in `private` only their owner may read. InputError if a file exists;
    FolderError if one cannot be written. Then what was written is removed again."""
    files = {**{name: text.encode("utf-8", "surrogateescape") for name, text in texts.items()}, **(copies or {})}
    refuse_existing(folder, files)
    written: list[Path] = []
    try:
        for name, data in files.items():
            _write(folder / name, data, written, 0o600 if name in private else 0o666)
    except OSError as error:
        for path in reversed(written):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        place = one_line(str(error.filename or folder))
        if isinstance(error, FileExistsError):
            raise InputError(f"{place} exists already; nothing was written") from error
        raise FolderError(f"{place} cannot be written: {why_failed(error)}; nothing was written") from error


def _write(path: Path, data: bytes, written: list[Path], mode: int) -> None:
    missing = [parent for parent in (path.parent, *path.parent.parents) if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir(exist_ok=True)
        written.append(parent)
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        written.append(path)
        file.write(data)
