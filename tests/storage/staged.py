"""Stages in this process, and as the command; compares copies. For the tests of staging."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmopt.errors import StagingError
from slurmopt.storage.staging.source import open_source
from slurmopt.storage.staging.stage import Staged, stage

MIB = 1 << 20
STAGE = [sys.executable, "-m", "slurmopt", "storage", "stage"]


def put(source: Path | str, into: Path, verify: str = "size", keep: bool = False, **options: Any) -> Staged:
    progress: Callable[[str], None] = options.pop("progress", lambda text: None)
    return stage(open_source(str(source), options), str(into), verify, keep, progress)


def refused(source: Path | str, into: Path) -> StagingError:
    with pytest.raises(StagingError) as caught:
        put(source, into)
    assert "\n" not in str(caught.value)
    return caught.value


def content(root: Path) -> dict[str, bytes | None]:
    """Each name below a folder, with the content of a file, and the target of a link; None for a folder."""
    found: dict[str, bytes | None] = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            link = os.fsencode(os.readlink(path)) if path.is_symlink() else None
            found[str(path.relative_to(root))] = link or (None if path.is_dir() else path.read_bytes())
    return found


def differences(one: Path, other: Path) -> set[str]:
    """The names that only one of two folders has, or whose content differs."""
    here, there = content(one), content(other)
    return {name for name in here.keys() | there.keys() if here.get(name, b"") != there.get(name, b"")}


def command(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen([*STAGE, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    data: dict[str, Any] = json.loads(output)["data"]
    return data
