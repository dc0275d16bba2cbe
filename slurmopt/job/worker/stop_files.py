"""A key-value store in the run folder, for ranks that agree on a stop after rank 0's store is lost."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path

from slurmopt.run_folder.access.files import open_held, read_whole, replace_text
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.access.temporary import temporary_name

_LARGEST = 4096
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)
_TRIES = 50
_PAUSE = 0.02
"""Seconds between two reads of a value that another rank is just writing."""
_REFRESH = 1.0
"""Seconds between two changes of the folder, by which an NFS client sees new files of other clients."""


class StopFiles:
    """The methods of a store that `CoordinatedStop` uses, with one file for each key. OSError if the folder cannot be
    written."""

    def __init__(self, folder: Path) -> None:
        held(folder).mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._refreshed = 0.0

    def set(self, key: str, value: str) -> None:
        """Sets `key`, unless it is set. Several ranks may set it, all to the same value."""
        self.compare_set(key, "", value)

    def check(self, keys: list[str]) -> bool:
        """Whether all `keys` are set; False if the folder cannot be read now."""
        if keys != ["asked"]:  # which is looked for all the time
            with contextlib.suppress(OSError):  # a full disk, which can be read
                self._refresh()
        try:
            present = set(os.listdir(held(self._folder)))
        except OSError:
            return False
        return all(self._path(key).name in present for key in keys)

    def get(self, key: str) -> bytes:
        """The value; b"" if it cannot be read now."""
        try:
            return read_whole(self._path(key), _LARGEST)
        except OSError:
            return b""

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Sets `key` to `desired` unless it is set, and returns its value. `expected` is always "", which means no
        value as in torch's stores."""
        if not (value := self.get(key)):
            self._put(self._path(key), desired)
        for _ in range(_TRIES):
            if value := self.get(key):
                break
            time.sleep(_PAUSE)
        return value

    def _put(self, path: Path, value: str) -> None:
        """Creates the file through a hard link, which appears with its whole content, and only once, on every node."""
        temporary = temporary_name(path)
        try:
            replace_text(temporary, value, 0o600)
            try:
                os.link(held(temporary), held(path))
            except FileExistsError:
                return
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                _create(path, value)
        finally:
            held(temporary).unlink(missing_ok=True)

    def _refresh(self) -> None:
        """Changes the folder, because NFS clients cache for up to a minute the content of folders that they have not
        changed."""
        if time.monotonic() >= self._refreshed + _REFRESH:
            self._refreshed = time.monotonic()
            temporary = held(temporary_name(self._folder / "refresh"))
            temporary.touch(0o600)
            temporary.unlink()

    def _path(self, key: str) -> Path:
        return self._folder / key.replace("/", "-")


def _create(path: Path, value: str) -> None:
    """Creates the file on a file system without hard links. Readers that find it empty read it again."""
    try:
        descriptor = open_held(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w") as file:
        file.write(value)
