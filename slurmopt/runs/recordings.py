"""Reads a recording: from a run, from a file of `--save` or `--json`, or from the output of nccl-tests."""

from __future__ import annotations

import re
from pathlib import Path

from slurmopt.collectives import nccl_tests
from slurmopt.collectives.definitions import COLLECTIVES
from slurmopt.collectives.recording import FORMAT, Recording, recording_of
from slurmopt.errors import InputError, RunError, one_line, why_failed
from slurmopt.run_folder.access.files import read_json, read_whole
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.find import find

_LARGEST = 64 << 20
_SUFFIXES = (".json", ".txt", ".log", ".out")
"""Of names that are files, and no runs, where neither is there."""
_START = f'{{"format": "{FORMAT}"'
"""Of the line that rank 0 prints, also in a run that fails because a value was wrong."""


def read(word: str, folder: Path) -> Recording:
    """The recording that RUN or FILE names. InputError, in one line, where there is none."""
    path = Path(word)
    if path.is_file() or (path.suffix in _SUFFIXES and not path.exists()):
        return _of_file(path)
    if path.exists() and not path.is_dir():
        raise InputError(f"{one_line(word)} is no regular file")
    return _of_run(find(word, folder))


def _of_file(path: Path) -> Recording:
    place = one_line(str(path))
    try:
        text = read_whole(path, _LARGEST).decode(errors="replace")
    except OSError as error:
        raise InputError(f"{place}: {why_failed(error)}") from error
    if nccl_tests.is_output(text):
        return nccl_tests.read(text, place, _named(path))
    return recording_of(text, place)


def _named(path: Path) -> str | None:
    """The collective that a file's name names, for outputs that do not say it."""
    plain = re.sub(r"[^a-z]", "", path.name.lower())
    return next((name for name in COLLECTIVES if name.replace("_", "") in plain), None)


def _of_run(run: RunFolder) -> Recording:
    label = one_line(f"{run.name}/{run.id}")
    try:
        held = read_json(run.result)
    except OSError as error:
        raise InputError(f"{one_line(str(run.result))}: {why_failed(error)}") from error
    if held is None:
        raise RunError(f"{label} has no result yet; slurmopt status {label}")
    result = held.get("result")
    if isinstance(result, dict) and "format" in result:
        return recording_of(_dumped(result), label)
    printed = _printed(run, held.get("attempt"))
    if printed is None:
        reason = one_line(str(held.get("error") or "its function returned something else"))[:300]
        raise RunError(f"{label} has no recording of slurmopt bench collectives: {reason}")
    return recording_of(printed, label)


def _dumped(result: dict[str, object]) -> str:
    import json

    return json.dumps(result)


def _printed(run: RunFolder, attempt: object) -> str | None:
    """The recording in the log of rank 0."""
    if not isinstance(attempt, int):
        return None
    try:
        lines = read_whole(run.rank_log(attempt, 0), _LARGEST).decode(errors="replace").splitlines()
    except OSError:
        return None
    return next((line for line in reversed(lines) if line.startswith(_START)), None)
