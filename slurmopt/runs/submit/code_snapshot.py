"""A copy of the code, so that edits while the job waits do not change it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

from slurmopt.errors import FolderError

_NEVER = {".git", "__pycache__", ".venv", "venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
_MODE = 0o750
"""Of its folders: a default ACL of the place counts instead of the umask."""


def copy_code(source: Path, target: Path, kind: str, skip: Path) -> None:
    """Copies `source` to `target`: `git`, what git tracks or would track; `copy`, all. Never `skip`, the runs."""
    files = _git_files(source) if kind == "git" else _all_files(source)
    target.mkdir(mode=_MODE, exist_ok=True)
    for file in files:
        path = source / file
        if skip in path.parents or not (path.is_file() or path.is_symlink()):
            continue
        _make_folders(target, (target / file).parent)
        shutil.copy2(path, target / file, follow_symlinks=False)
        if not path.is_symlink():  # the copy is run as the owner, whoever may write the original
            (target / file).chmod(stat.S_IMODE(path.stat().st_mode) & ~0o022)


def _make_folders(top: Path, folder: Path) -> None:
    """Makes `folder`, below `top`, and what is missing between: parents that mkdir makes have a mode of its own."""
    for missing in reversed([path for path in (folder, *folder.parents) if top in path.parents]):
        missing.mkdir(mode=_MODE, exist_ok=True)


def _git_files(source: Path) -> list[str]:
    command = ["git", "-C", str(source), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        process = subprocess.run(command, capture_output=True, timeout=120, check=True)
    except FileNotFoundError as error:
        raise FolderError("environment.snapshot=git needs git, which is not here; valid: copy, off") from error
    except subprocess.SubprocessError as error:
        raise FolderError(
            f"environment.snapshot=git needs a git repository, which {str(source)!r} is not; valid: copy, off"
        ) from error
    return [os.fsdecode(name) for name in process.stdout.split(b"\0") if name]


def _all_files(source: Path) -> list[str]:
    paths = []
    for folder, folders, files in os.walk(source):
        folders[:] = [name for name in folders if name not in _NEVER]
        paths += [os.path.relpath(os.path.join(folder, name), source) for name in files]
    return paths
