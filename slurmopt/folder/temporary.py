"""Names for what is renamed into place once it is whole, and what becomes of those whose process was killed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import time
from pathlib import Path

_OLD = 86400.0
"""Seconds after which nobody still writes one, whatever its process is."""
_NAME = re.compile(r"\..+\.(?P<host>[^/]*)-(?P<pid>[0-9]+)-[0-9a-f]{8}", re.DOTALL)


def beside(path: Path) -> Path:
    """A hidden name in `path`'s folder that nobody can foresee, and that tells which process it belongs to."""
    return path.with_name(f".{path.name}.{os.uname().nodename}-{os.getpid()}-{os.urandom(4).hex()}")


def clear(folder: Path) -> None:
    """Removes from `folder` what this user's processes left there that were killed while they wrote it: of this machine
    those that are gone, of others what is a day old. Nothing here is worth an error."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if (match := _NAME.fullmatch(name)) is not None:
                _clear(folder / name, match["host"], int(match["pid"]))


def _clear(path: Path, host: str, pid: int) -> None:
    with contextlib.suppress(OSError):
        facts = path.lstat()
        is_dead = host == os.uname().nodename and not os.path.exists(f"/proc/{pid}")
        if facts.st_uid != os.geteuid() or not (is_dead or time.time() - facts.st_mtime > _OLD):
            return
        if stat.S_ISDIR(facts.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
