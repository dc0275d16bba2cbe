"""Notes where this user launches, so that runs are found from any folder.

Each launch appends one line to a private file of the user, `index.jsonl` in `$XDG_STATE_HOME/slurmopt` (default:
`~/.local/state/slurmopt`): `{"time": 1732466000.0, "run": "/home/ada/project/runs/NAME/ID"}`. The file is a hint: a
line may be lost, torn or forged, and what it names is checked like any other folder. A failure to write it never stops
a launch.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from slurmopt import command_output
from slurmopt.errors import one_line, why_failed
from slurmopt.run_folder.access.owner import is_open, is_own, is_trusted
from slurmopt.run_folder.access.temporary import temporary_name
from slurmopt.run_folder.layout import RunFolder

_LARGEST = 256 << 10
"""Bytes. Once the file is larger, it keeps the latest line of each folder."""
_MOST_READ = 4 << 20
_said: list[str] = []
"""The failure of this process, which is reported once."""


def note(run: RunFolder) -> None:
    """Notes a launch of `run`, which may also be a sweep. A failure is reported once on standard error."""
    try:
        _append(run.path.absolute())
    except (OSError, RuntimeError) as error:  # RuntimeError: a user without a home
        why = why_failed(error) if isinstance(error, OSError) else one_line(str(error))
        if not _said:
            command_output.warn(
                f"{_shown_place()} could not be written ({why}): from other folders, "
                f"name the run with --folder {one_line(str(run.path.absolute().parent.parent))}"
            )
        _said.append(why)


def known_folders() -> list[Path]:
    """The folders (`launch.folder`) in which this user has launched and which still exist, newest first."""
    return [Path(folder) for folder in reversed(_folders(_lines())) if _is_folder(folder)]


def _shown_place() -> str:
    try:
        return one_line(str(_file()))
    except RuntimeError:
        return "the list of your runs"


def _file() -> Path:
    configured = os.environ.get("XDG_STATE_HOME", "")
    base = Path(configured) if os.path.isabs(configured) else Path.home() / ".local" / "state"
    return base / "slurmopt" / "index.jsonl"


def _append(path: Path) -> None:
    """Appends one line. It begins with a newline too, as the line before may be torn."""
    file = _file()
    _make_place(file.parent)
    line = json.dumps({"time": round(time.time(), 3), "run": str(path)})
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        _refuse(file, os.fstat(descriptor))
        os.write(descriptor, f"\n{line}\n".encode())
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    if size > _LARGEST:
        _shorten(file)


def _make_place(folder: Path) -> None:
    """Makes the private folder; not in the home of another user, as under sudo."""
    existing = next(path for path in folder.parents if path.exists())
    if not is_trusted(existing.stat(), existing):
        raise PermissionError(f"{existing} belongs to another user")
    if os.geteuid() == 0 and existing.stat().st_uid != 0:
        raise PermissionError(f"{existing} belongs to another user")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _refuse(file: Path, facts: os.stat_result) -> None:
    """OSError where another user could have written the file, or put it there."""
    for path, found in ((file, facts), (file.parent, file.parent.stat())):
        if not is_own(found, file.parent) or is_open(found, file.parent):
            raise PermissionError(f"others may write {path}")
    if not stat.S_ISREG(facts.st_mode):
        raise PermissionError(f"{file} is not a regular file")


def _lines() -> list[bytes]:
    """The lines of the file, oldest first; none where it cannot be read or others could have written it."""
    with contextlib.suppress(OSError, RuntimeError):
        file = _file()
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as opened:
            facts = os.fstat(descriptor)
            _refuse(file, facts)
            opened.seek(max(0, facts.st_size - _MOST_READ))
            return opened.read(_MOST_READ).splitlines()
    return []


def _folders(lines: list[bytes]) -> dict[str, bytes]:
    """Folder → its latest line; the folder of the latest launch is the last one."""
    latest: dict[str, bytes] = {}
    for folder, line in _parsed(lines):
        latest.pop(folder, None)
        latest[folder] = line
    return latest


def _parsed(lines: list[bytes]) -> Iterator[tuple[str, bytes]]:
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            noted = json.loads(line)
            run = noted.get("run") if isinstance(noted, dict) else None
            if isinstance(run, str) and os.path.isabs(run) and "\0" not in run and run.count("/") > 2:
                yield os.path.dirname(os.path.dirname(os.path.normpath(run))), line


def _is_folder(path: str) -> bool:
    try:
        return os.path.isdir(path)
    except ValueError:  # a lone surrogate that no path has
        return False


def _shorten(file: Path) -> None:
    """Keeps the latest line of each folder, and what other launches append meanwhile."""
    with open(file, "rb") as old:
        kept = b"".join(b"\n" + line + b"\n" for line in _folders(old.read(_MOST_READ).splitlines()).values())
        _replace(file, kept)
        if late := old.read(_MOST_READ):
            with open(file, "ab") as new:
                new.write(late)


def _replace(file: Path, kept: bytes) -> None:
    temporary = temporary_name(file)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as written:
            written.write(kept)
        os.replace(temporary, file)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
