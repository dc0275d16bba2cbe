"""Changes the stored config of a run as `slurmopt retry` asks."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt.config.resources import MEMORY
from slurmopt.errors import ConfigError, one_line, why_failed
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.units import mebibytes, seconds, slurm_time

if TYPE_CHECKING:
    from slurmopt.config.resources import Resources
    from slurmopt.config.schema import Settings
    from slurmopt.runs.submit.unfinished_retry import Unfinished

FIXED = {
    "launch.folder": "the run stays in its folder",
    "launch.id": "the run keeps its ID",
    "launch.name": "the run keeps its name",
    "launch.run": "name the run itself: slurmopt retry RUN",
    "launch.backend": "a run stays with its backend",
    "launch.group_access": "the run folder is there already; chmod changes who may read it",
    "launch.dry_run": "write --dry-run",
    "launch.json": "write --json",
    "launch.wait": "a retry does not wait; slurmopt logs RUN --follow does",
    "environment.snapshot": "the run keeps the code that its launch took",
}
"""What a retry cannot change, and why or what to do instead."""

_FROM_HERE = (("environment", "workdir"), ("launch", "template"))
"""Paths; new ones are relative to the current directory."""


@dataclass(frozen=True)
class More:
    """Factors above 1, or None."""

    memory: float | None = None
    time: float | None = None


@dataclass(frozen=True)
class Changed:
    """A stored config with overrides."""

    stored: dict[str, Any]
    settings: Settings
    changes: dict[str, list[Any]]
    """A key → its value before and after; null where there is none."""


def stored_config(run: RunFolder, repeated: Unfinished | None = None) -> dict[str, Any]:
    """config.yaml, unresolved; of a `repeated` retry, as it was before that retry.

    Raises ConfigError where it cannot be read.
    """
    from yaml import YAMLError

    from slurmopt.config.composition import stored_yaml

    try:
        if repeated is None:
            stored = stored_yaml.load(run.config, mine=True)
        else:
            stored = stored_yaml.parse(repeated.files.get(run.config.name) or "")
    except (OSError, YAMLError) as error:
        raise ConfigError(f"{run.config} cannot be read: {one_line(why_failed(error))}") from error
    if not isinstance(stored, dict):
        raise ConfigError(f"{run.config} is not a config")
    return {str(key): value for key, value in stored.items()}


def imports(stored: Mapping[str, Any]) -> list[str]:
    """`launch.imports`: the modules whose resolvers must be registered before the config is converted to its types."""
    launch = stored.get("launch")
    modules = launch.get("imports") if isinstance(launch, dict) else None
    return [str(module) for module in modules] if isinstance(modules, list) else []


def changed(stored: dict[str, Any], arguments: list[str], more: More) -> Changed:
    """`stored` with the overrides `arguments` and with `more`. Raises ConfigError naming the key."""
    from slurmopt.config.composition.override import overridden, parse

    overrides = parse(arguments)
    _, _, before = overridden(stored, [])
    factor_overrides = _factor_overrides(before.resources, more)
    _refuse_twice({override.key_or_group for override in overrides}, factor_overrides)
    before_plain, after_plain, after = overridden(stored, overrides + parse(factor_overrides))
    _refuse_fixed(before_plain, after_plain)
    if (before.task._target_ is None) != (after.task._target_ is None):
        raise ConfigError("a function stays a function, a command a command; launch a run of its own", "task")
    after = _absolute(before_plain, after_plain, after)
    return Changed(after_plain, after, dict(_differences(before_plain, after_plain)))


def latest_changes(run: RunFolder) -> dict[str, Any]:
    """The changes of the latest retry."""
    retries = [event.get("changes") for event in events.read(run.events, "retry")]
    return retries[-1] if retries and isinstance(retries[-1], dict) else {}


def is_repeated(run: RunFolder, broken_off: Unfinished, overrides: list[str], more: More) -> bool:
    """Whether `overrides` and `more` change the config in the same way as the retry that broke off."""
    try:
        changes = changed(stored_config(run, broken_off), overrides, more).changes
    except ConfigError:  # the error is reported for the config as it is now
        return False
    return bool(json.loads(json.dumps(changes)) == latest_changes(run))


def _factor_overrides(resources: Resources, more: More) -> list[str]:
    overrides = []
    if more.memory is not None:
        name, value = _memory(resources)
        overrides.append(f"resources.{name}='{math.ceil(mebibytes(value) * more.memory)}M'")
    if more.time is not None:
        if resources.time is None:
            raise ConfigError(
                "is not set, so --more-time has nothing to multiply; set it: resources.time=4h", "resources.time"
            )
        overrides.append(f"resources.time='{slurm_time(math.ceil(seconds(resources.time) * more.time))}'")
    return overrides


def _memory(resources: Resources) -> tuple[str, str]:
    for name in MEMORY:
        if (value := getattr(resources, name)) is not None:
            if mebibytes(value) == 0:
                raise ConfigError("is all of each node's memory already; choose larger nodes", f"resources.{name}")
            return name, value
    raise ConfigError(
        "is not set, and neither are memory_per_cpu and memory_per_gpu, so --more-memory has nothing to multiply; "
        "set it: resources.memory=64GB",
        "resources.memory",
    )


def _refuse_twice(keys: set[str], factor_overrides: list[str]) -> None:
    for override in factor_overrides:
        key = override.partition("=")[0]
        if key in keys:
            raise ConfigError("is set by an override and multiplied too; leave one out", key)


def _refuse_fixed(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    for key, why in FIXED.items():
        group, name = key.split(".")
        if before[group].get(name) != after[group].get(name):
            raise ConfigError(f"cannot be changed by a retry: {why}", key)


def _absolute(before: dict[str, Any], after: dict[str, Any], settings: Settings) -> Settings:
    for group, name in _FROM_HERE:
        path = after[group].get(name)
        if isinstance(path, str) and path != before[group].get(name) and not path.startswith("${"):
            path = after[group][name] = str(Path(path).expanduser().absolute())
            settings = replace(settings, **{group: replace(getattr(settings, group), **{name: path})})
    return settings


def _differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, list[Any]]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from _differences(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    elif before != after:
        yield path, [before, after]


def launch_directory(run: RunFolder) -> Path | None:
    """The working directory of the run's launch; None where an earlier slurmopt did not note it."""
    for event in events.read(run.events, "created"):
        return Path(event["cwd"]) if isinstance(event.get("cwd"), str) else None
    return None


def launch_overrides(run: RunFolder) -> list[str]:
    """The overrides of the run's launch and of its retries, for the comment at the top of the script."""
    from yaml import YAMLError

    from slurmopt.config.composition import stored_yaml

    overrides: list[str] = []
    with contextlib.suppress(OSError, YAMLError):  # they are only a comment
        launched = stored_yaml.load(run.overrides)
        overrides += [str(override) for override in launched] if isinstance(launched, list) else []
    for event in events.read(run.events, "retry"):
        if isinstance(event.get("changes"), dict):
            overrides += as_overrides(event["changes"])
    return overrides


def as_overrides(changes: Mapping[str, Any]) -> list[str]:
    """The changes as overrides, for people to read."""
    return [f"{key}={change[1]}" for key, change in changes.items() if isinstance(change, list) and len(change) == 2]


def for_people(changes: Mapping[str, Any]) -> str:
    """`resources.memory 1G → 1536M`."""
    pairs = {key: change for key, change in changes.items() if isinstance(change, list) and len(change) == 2}
    return ", ".join(f"{key} {_shown(old)} → {_shown(new)}" for key, (old, new) in pairs.items())


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)
