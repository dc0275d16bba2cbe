"""Checks `storage.stage` at launch against what this machine sees."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from slurmopt.checks.in_thread import within
from slurmopt.config.schema import Settings
from slurmopt.config.storage import stage_plan
from slurmopt.config.tiers import known
from slurmopt.errors import ConfigError, why_failed
from slurmopt.run_folder.variables import Unset, fill
from slurmopt.storage.filesystem.usage import nearest_folder
from slurmopt.storage.staging.source import is_s3

_SECONDS = 15.0
"""For a file system to answer."""


def check_per_job(settings: Settings) -> None:
    """Raises ConfigError if nothing of slurmopt would run on some of the nodes. `task.per` is decided."""
    if settings.storage.stage and settings.task.per == "job" and settings.resources.most_nodes > 1:
        raise ConfigError(
            "with task.per=job the command starts the ranks, and slurmopt runs on the first node alone; "
            "valid: task.per=rank or node, or resources.nodes=1",
            "storage.stage",
        )


def check_stage_packages(settings: Settings) -> None:
    """Raises ConfigError if a source is in S3 and this Python, which the job uses too, has no boto3."""
    for name, entry in settings.storage.stage.items():
        if is_s3(str(entry.source)) and importlib.util.find_spec("boto3") is None:
            raise ConfigError("needs boto3: pip install boto3", f"storage.stage.{name}.source")


def check_sources(settings: Settings) -> list[str]:
    """Raises ConfigError for a source that does not exist. Returns a line for each that is not seen from here."""
    plan = stage_plan(settings.storage, settings.checkpoint)
    lines = []
    for name, entry in plan.entries.items() if plan is not None else ():
        if known(place := _filled(str(entry.source))) and not is_s3(place):
            lines += _check(Path(place).expanduser(), f"storage.stage.{name}.source")
    return lines


def _filled(text: str) -> str:
    try:
        return fill(text, os.environ)
    except Unset:  # it may be set in the job
        return text


def _check(place: Path, key: str) -> list[str]:
    try:
        if within(_SECONDS, lambda: os.path.lexists(place)):
            return _check_kind(place, key)
        near = within(_SECONDS, lambda: nearest_folder(place))
    except TimeoutError:
        return [f"{key}: the file system of {str(place)!r} did not answer within {_SECONDS:g} s; not checked"]
    if near == Path("/") or _is_empty(near):  # not mounted here, as it seems
        return [f"{key}: {str(place)!r} is not seen from this machine; not checked"]
    raise ConfigError(f"{str(place)!r} does not exist; what exists is {str(near)!r}", key)


def _check_kind(place: Path, key: str) -> list[str]:
    try:
        if place.is_dir() or place.is_file():
            return []
        what = "a link to nothing" if place.is_symlink() else "neither a folder nor a regular file"
    except OSError as error:
        raise ConfigError(f"{str(place)!r} cannot be read: {why_failed(error)}", key) from error
    raise ConfigError(f"{str(place)!r} is {what}", key)


def _is_empty(folder: Path) -> bool:
    try:
        return not os.listdir(folder)
    except OSError:  # what is there is not for this user to see
        return False
