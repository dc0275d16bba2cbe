"""Keys and values in the run folder, for ranks that agree on where to stop after rank 0's store is lost."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from slurmopt.folder.files import read_whole, replace_text
from slurmopt.folder.held import held
from slurmopt.folder.temporary import temporary_name

_LARGEST = 4096


class StopFiles:
    """What `Stop` asks of a store, with a file for each key. OSError where the folder cannot be written."""

    def __init__(self, folder: Path) -> None:
        self._folder = held(folder)
        self._folder.mkdir(mode=0o700, exist_ok=True)

    def set(self, key: str, value: str) -> None:
        replace_text(self._path(key), value, 0o600)

    def check(self, keys: list[str]) -> bool:
        """Whether all `keys` are there; not, where the folder cannot be looked at just now."""
        try:
            there = set(os.listdir(self._folder))
        except OSError:
            return False
        return all(self._path(key).name in there for key in keys)

    def get(self, key: str) -> bytes:
        return read_whole(self._path(key), _LARGEST)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """The value of `key`, which is `desired` where it had none. `expected` is always "": as with torch's stores, it
        stands for none. A link appears with all of its file, and only once, on every node."""
        temporary = temporary_name(self._path(key))
        try:
            replace_text(temporary, desired, 0o600)
            with contextlib.suppress(FileExistsError):
                os.link(temporary, self._path(key))
        finally:
            temporary.unlink(missing_ok=True)
        return self.get(key)

    def _path(self, key: str) -> Path:
        return self._folder / key.replace("/", "-")
