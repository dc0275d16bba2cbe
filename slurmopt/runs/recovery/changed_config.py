"""What `slurmopt retry` changes in the stored config of a run."""

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
"""Paths; those that are typed now are meant from where one stands now."""


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
    """config.yaml, nothing of it resolved; of a retry that is repeated, what that found. Raises ConfigError where it
    cannot be read."""
    from yaml import YAMLError

    from slurmopt.config.composition import stored_yaml

    try:
        if repeated is None:
            stored = stored_yaml.load(run.config, mine=True)
        else:
            stored = stored_yaml.parse(repeated.files.get(run.config.name, ""))
    except (OSError, YAMLError) as error:
        raise ConfigError(f"{run.config} cannot be read: {one_line(why_failed(error))}") from error
    if not isinstance(stored, dict):
        raise ConfigError(f"{run.config} is no config")
    return {str(key): value for key, value in stored.items()}


def imports(stored: Mapping[str, Any]) -> list[str]:
    """`launch.imports`: the modules whose resolvers the config needs before it can be typed."""
    launch = stored.get("launch")
    modules = launch.get("imports") if isinstance(launch, dict) else None
    return [str(module) for module in modules] if isinstance(modules, list) else []


def changed(stored: dict[str, Any], words: list[str], more: More) -> Changed:
    """`stored` with the overrides `words` and with `more`. Raises ConfigError naming the key."""
    from slurmopt.config.composition.override import overridden, parse

    overrides = parse(words)
    _, _, before = overridden(stored, [])
    more_words = _more_words(before.resources, more)
    _refuse_twice({override.key_or_group for override in overrides}, more_words)
    before_plain, after_plain, after = overridden(stored, overrides + parse(more_words))
    _refuse_fixed(before_plain, after_plain)
    if (before.task._target_ is None) != (after.task._target_ is None):
        raise ConfigError("a function stays a function, a command a command; launch a run of its own", "task")
    after = _absolute(before_plain, after_plain, after)
    return Changed(after_plain, after, dict(_differences(before_plain, after_plain)))


def latest_changes(run: RunFolder) -> dict[str, Any]:
    """What the latest retry has changed."""
    noted = [event.get("changes") for event in events.read(run.events, "retry")]
    return noted[-1] if noted and isinstance(noted[-1], dict) else {}


def is_repeated(run: RunFolder, broken_off: Unfinished, words: list[str], more: More) -> bool:
    """Whether `words` and `more` make of what the retry found just what it made of it."""
    try:
        changes = changed(stored_config(run, broken_off), words, more).changes
    except ConfigError:  # what is wrong is said of the config as it is now
        return False
    return bool(json.loads(json.dumps(changes)) == latest_changes(run))


def _more_words(resources: Resources, more: More) -> list[str]:
    words = []
    if more.memory is not None:
        name, value = _memory(resources)
        words.append(f"resources.{name}='{math.ceil(mebibytes(value) * more.memory)}M'")
    if more.time is not None:
        if resources.time is None:
            raise ConfigError(
                "is not set, so --more-time has nothing to multiply; set it: resources.time=4h", "resources.time"
            )
        words.append(f"resources.time='{slurm_time(math.ceil(seconds(resources.time) * more.time))}'")
    return words


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


def _refuse_twice(keys: set[str], more_words: list[str]) -> None:
    for word in more_words:
        key = word.partition("=")[0]
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


def typed_in(run: RunFolder) -> Path | None:
    """The folder in which the run's launch was typed; None where an earlier slurmopt did not note it."""
    for event in events.read(run.events, "created"):
        return Path(event["cwd"]) if isinstance(event.get("cwd"), str) else None
    return None


def typed_words(run: RunFolder) -> list[str]:
    """The overrides that the run was launched with, and those of its retries, as the script's first lines tell."""
    from yaml import YAMLError

    from slurmopt.config.composition import stored_yaml

    words: list[str] = []
    with contextlib.suppress(OSError, YAMLError):  # they are told for people's sake
        launched = stored_yaml.load(run.overrides)
        words += [str(word) for word in launched] if isinstance(launched, list) else []
    for event in events.read(run.events, "retry"):
        if isinstance(event.get("changes"), dict):
            words += as_words(event["changes"])
    return words


def as_words(changes: Mapping[str, Any]) -> list[str]:
    """Changes as overrides, for people."""
    return [f"{key}={change[1]}" for key, change in changes.items() if isinstance(change, list) and len(change) == 2]


def for_people(changes: Mapping[str, Any]) -> str:
    """`resources.memory 1G → 1536M`."""
    pairs = {key: change for key, change in changes.items() if isinstance(change, list) and len(change) == 2}
    return ", ".join(f"{key} {_shown(old)} → {_shown(new)}" for key, (old, new) in pairs.items())


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)
