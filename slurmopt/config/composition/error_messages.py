"""Converts errors of Hydra and OmegaConf to messages of one line: the problem, its place, and the valid values."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields, is_dataclass
from typing import Any

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

from slurmopt.config.check import did_you_mean
from slurmopt.config.schema import GROUPS
from slurmopt.errors import ConfigError, one_line

_OF_SBATCH = {
    "gpus": "gpus_per_node",
    "gres": "gpus_per_node",
    "ntasks": "tasks_per_node",
    "ntasks_per_node": "tasks_per_node",
    "mem": "memory",
    "mem_per_cpu": "memory_per_cpu",
    "mem_per_gpu": "memory_per_gpu",
    "cpus": "cpus_per_task",
    "walltime": "time",
    "timeout_min": "time",
    "slurm_partition": "partition",
    "args": "command",
    "script": "command",
}
"""The key of slurmopt for a name that sbatch, submitit or a habit has."""
_OPERATOR = re.compile(r"\s(?:\|\|?|&&?|[12]?>>?|<|&>)\s")


def meant_key(name: str) -> str | None:
    """The key of slurmopt that a bare name as of sbatch most likely means: nodes, gpus, partition, name; else None."""
    if name in ("name", "folder", "backend"):
        return f"launch.{name}"
    name = _OF_SBATCH.get(name, name)
    return f"resources.{name}" if name in {field.name for field in fields(GROUPS["resources"])} else None


def translate(error: BaseException) -> ConfigError:
    """Returns the ConfigError for an error of Hydra or OmegaConf."""
    if isinstance(error, OverrideParseException):
        command = str(error.override).removeprefix("task.command=")
        if command != error.override and _OPERATOR.search(command):
            quoted = one_line(shlex.quote(command))
            return ConfigError(f"{quoted} needs a shell; write: slurmopt run -- bash -c {quoted}", "task.command")
        why = one_line(_first_lines(str(error)))
        return ConfigError(
            f"{one_line(error.override)!r} is not an override ({why}); quote the value: key='\"a[1-2]\"'"
        )
    where = _place(str(error))
    cause = _deepest(error)
    if isinstance(cause, MissingConfigException):
        return ConfigError(_missing(cause))
    key = getattr(cause, "full_key", None) or None
    if (group := _collision(cause, key)) is not None:
        if "." in group:
            return ConfigError(f"is a group of keys; set one of them: {group}.KEY=VALUE{where}", group)
        return ConfigError(f"is a group of slurmopt's; nest your own value elsewhere, such as my.{group}{where}", group)
    if isinstance(cause, OmegaConfBaseException):
        return ConfigError(_explain(cause, key) + where, key)
    return ConfigError(one_line(_first_lines(str(error))))


def _deepest(error: BaseException) -> BaseException:
    """Returns the first error in the chain of causes that has the key, else `error`."""
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, (OmegaConfBaseException, MissingConfigException)):
            return current
        current = current.__cause__ or current.__context__
    return error


def _place(message: str) -> str:
    match = re.match(r"In '([^']+)'", message)
    return f" (in {match[1]}.yaml)" if match else ""


def _collision(error: BaseException, key: str | None) -> str | None:
    """Returns the group to which a plain value was assigned; None for other errors."""
    match = re.search(r"is not a subclass of (\w+)", str(error))
    if match is None or not isinstance(error, ValidationError):
        return None
    return next((name for name, group in GROUPS.items() if group.__name__ == match[1]), key)


def _explain(error: OmegaConfBaseException, key: str | None) -> str:
    if isinstance(error, (ConfigKeyError, ConfigAttributeError)):
        path, _, name = (key or "").rpartition(".")
        if path and is_dataclass(kind := error.object_type):
            return unknown_key(kind, path, name)
        return f"no such key{did_you_mean(name, GROUPS)}; to add one of your own write +{key}=…"
    if isinstance(error, MissingMandatoryValue):
        return "has no value (???)"
    if isinstance(error, InterpolationKeyError):
        return one_line(_first_lines(str(error.msg or error)))
    if isinstance(error, InterpolationResolutionError):
        return f"cannot be resolved: {one_line(_first_lines(str(error.msg or error)))}"
    message = one_line(_first_lines(str(error.msg or error)))
    return next((f"{message if full else ''}{words}" for text, full, words in _VALID if text in message), message)


_VALID = (
    ("is not a ListConfig, list or tuple", False, "is not a list; valid: [one, two]"),
    ("Invalid value assigned", False, "is not a list; valid: [one, two]"),
    (
        "Cannot merge DictConfig with ListConfig",  # OmegaConf says so both ways
        False,
        "is a list in place of a mapping, or the other way round; valid: [one, two], or {key: value} for a mapping",
    ),
    ("is not Optional", False, "null is not valid; without the key its default counts"),
    ("Incompatible value 'None'", False, "null is not valid; without the key its default counts"),
    ("could not be converted to Integer", True, "; valid: a whole number"),
    ("could not be converted to Float", True, "; valid: a number"),
    ("is not a valid bool", True, "; valid: true, false"),
)
"""A part of OmegaConf's message, whether that message is kept, and the text that is appended to it."""


def unknown_key(kind: Any, path: str, name: str) -> str:
    """Returns the message for an unknown key `name` of the dataclass `kind`, which is at `path` in the config."""
    valid = [item.name for item in fields(kind)]
    listed = ", ".join(valid) if valid else "none yet (the group is reserved)"
    hint = f" (did you mean {meant!r}?)" if (meant := _OF_SBATCH.get(name)) in valid else did_you_mean(name, valid)
    return f"unknown key{hint}; valid in {path!r}: {listed}. Keys of your own go beside the groups, at the root"


def _first_lines(message: str) -> str:
    """Returns the first three lines of a message, without details such as `full_key`, joined by spaces."""
    kept = [line.strip() for line in message.splitlines() if line.strip()]
    kept = [line for line in kept if not re.match(r"(full_key|object_type|reference_type|See https)", line)]
    return " ".join(kept[:3])


def _missing(error: MissingConfigException) -> str:
    group = (error.missing_cfg_file or "").strip("/")
    options = error.options or []
    name = group.rsplit("/", 1)[-1]
    listed = f"; available: {', '.join(options)}" if options else ""
    return f"there is no config {group!r}{did_you_mean(name, options)}{listed}" if group else one_line(str(error))
