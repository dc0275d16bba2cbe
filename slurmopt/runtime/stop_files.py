"""Keys and values in the run folder, for ranks that agree on where to stop after rank 0's store is lost."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from slurmopt.folder.files import read_whole, replace_text
from slurmopt.folder.held import held
from slurmopt.folder.temporary import temporary_name

_LARGEST = 4096
_REFRESH = 1.0
"""Seconds between two changes of the folder by which an NFS client learns what others have put there."""


class StopFiles:
    """What `Stop` asks of a store, with a file for each key. OSError where the folder cannot be written."""

    def __init__(self, folder: Path) -> None:
        self._folder = held(folder)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._refreshed = 0.0

    def set(self, key: str, value: str) -> None:
        """Gives `key` its first value: several ranks may set one, all to the same."""
        self.compare_set(key, "", value)

    def check(self, keys: list[str]) -> bool:
        """Whether all `keys` are there; not, where the folder cannot be looked at just now."""
        try:
            if keys != ["asked"]:  # which is looked for all the time
                self._refresh()
            there = set(os.listdir(self._folder))
        except OSError:
            return False
        return all(self._path(key).name in there for key in keys)

    def get(self, key: str) -> bytes:
        """The value; b"" where it cannot be read just now."""
        try:
            return read_whole(self._path(key), _LARGEST)
        except OSError:
            return b""

    def _refresh(self) -> None:
        """Changes the folder, because NFS clients remember for up to a minute what was in a folder that they have not
        changed themselves."""
        if time.monotonic() >= self._refreshed + _REFRESH:
            self._refreshed = time.monotonic()
            temporary = temporary_name(self._folder / "refresh")
            temporary.touch(0o600)
            temporary.unlink()

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
