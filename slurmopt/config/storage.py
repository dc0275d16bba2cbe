"""The group `storage`: what is copied to the disk of each node before the training.

The job imports this module too, so it does not import Hydra or OmegaConf.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from slurmopt.config.check import did_you_mean, one_of, text_or_null, true_or_false
from slurmopt.config.checkpoint import Checkpoint
from slurmopt.config.tiers import known
from slurmopt.errors import ConfigError, one_line
from slurmopt.run_folder.json_values import from_fields
from slurmopt.storage.s3.url import split
from slurmopt.storage.staging.source import is_s3

VERIFY = ("size", "checksum")
VARIABLE = "SLURMOPT_STAGED_"
"""The prefix of the environment variables with the places of the copies."""
DEFAULT_FOLDER = "${oc.env:TMPDIR,/tmp}"
"""Where copies are made if neither `into` nor `checkpoint.scratch.path` is set; filled in by the job."""
ENTRIES = "entries"
"""The metadata of a field whose values are dataclasses: the name of a key in docs, and the dataclass."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_LONGEST_NAME = 64


@dataclass(kw_only=True)
class StagedSource:
    """A folder, a file or a prefix of S3 that each node copies to its own disk before the training."""

    source: str | None = None
    """What is copied: an absolute path of a folder or a file (a container image, a tar), or `s3://BUCKET/PREFIX`, with
    `checkpoint.s3.endpoint` and `checkpoint.s3.region`."""

    into: str | None = None
    """A folder on the local disk of each node, such as `${oc.env:TMPDIR}`, which is resolved in the job. Default:
    `checkpoint.scratch.path`, else `$TMPDIR`, else `/tmp`."""

    verify: str = "size"
    """`size`: files that are there already must have the right size and time, and are read only after a reboot;
    `checksum`: they are read, and each new file is read back from the disk, which takes about twice as long."""

    keep: bool = False
    """Whether the copy stays on the node for later jobs, until they need its space. Otherwise the last rank of the node
    removes it when the run has ended."""


@dataclass(kw_only=True)
class Storage:
    """What is copied to the disk of each node before the training, by [name](staging.md)."""

    stage: dict[str, Any] = field(default_factory=dict, metadata={ENTRIES: ("NAME", StagedSource)})
    """Name → a source, or a mapping with `source`, `into`, `verify` (`size` or `checksum`) and `keep`. The copy of
    `imagenet` is at `$SLURMOPT_STAGED_IMAGENET` and `slurmopt.staged("imagenet")`."""

    def __post_init__(self) -> None:
        if not isinstance(self.stage, Mapping):
            raise ConfigError(f"{self.stage!r} is not valid; valid: {{name: source}}", "storage.stage")
        self.stage = {str(name): _entry(value, f"storage.stage.{name}") for name, value in self.stage.items()}
        variables: dict[str, str] = {}
        for name, entry in self.stage.items():
            _check_name(name)
            other = variables.setdefault(variable(name), name)
            if other != name:
                raise ConfigError(f"has the same variable {variable(name)} as {other!r}", f"storage.stage.{name}")
            _check(entry, f"storage.stage.{name}")


def _entry(value: object, key: str) -> StagedSource:
    """An entry from its short form, a source, or from a mapping."""
    if isinstance(value, StagedSource):
        return value
    if not isinstance(value, Mapping):
        return StagedSource(source=value)  # type: ignore[arg-type]
    for name in map(str, value):
        if name not in FIELDS:
            raise ConfigError(
                f"unknown key{did_you_mean(name, FIELDS)}; valid in {key!r}: {', '.join(FIELDS)}", f"{key}.{name}"
            )
    return StagedSource(**value)


def variable(name: str) -> str:
    """The environment variable that holds the place of a copy."""
    return VARIABLE + name.upper()


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        message = "is not a name; valid: up to 64 letters, digits and underscores, first a letter"
        raise ConfigError(message, f"storage.stage.{one_line(name)}")


def _check(entry: StagedSource, key: str) -> None:
    text_or_null(entry.source, f"{key}.source")
    if entry.source in (None, ""):
        raise ConfigError("is missing; valid: an absolute path, or s3://BUCKET/PREFIX", f"{key}.source")
    one_of(str(entry.verify), VERIFY, f"{key}.verify")
    true_or_false(entry.keep, f"{key}.keep")
    text_or_null(entry.into, f"{key}.into")
    if known(entry.into) and not os.path.isabs(os.path.expanduser(str(entry.into))):
        raise ConfigError(f"{entry.into!r} is not an absolute path", f"{key}.into")
    if not known(entry.source):
        return
    if is_s3(entry.source):
        split(entry.source, f"{key}.source")
    elif "://" in entry.source or not os.path.isabs(os.path.expanduser(entry.source)):
        valid = "an absolute path, or s3://BUCKET/PREFIX"
        raise ConfigError(f"{entry.source!r} is not valid; valid: {valid}", f"{key}.source")
    else:
        _check_places(entry.source, entry.into, key)


def _check_places(source: str, into: str | None, key: str) -> None:
    """Raises ConfigError if the source and the folder of the copies contain each other, as far as it is known here."""
    if into is None or not known(into):
        return
    here, there = (os.path.normpath(os.path.expanduser(path)) for path in (source, into))
    if os.path.commonpath([here, there]) == here:
        raise ConfigError(f"{into!r} is inside of the source {source!r}", f"{key}.into")
    if os.path.commonpath([here, there]) == there and there != "/":
        raise ConfigError(f"{source!r} is in {into!r}, the folder of the copies, already", f"{key}.source")


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """The group in the form that the job uses."""

    entries: dict[str, StagedSource]
    """`into` is set in each; `${oc.env:NAME}` in it is resolved in the job."""
    s3: dict[str, Any] = field(default_factory=dict)
    """The options of the store of an `s3://` source."""

    def to_json_arg(self) -> str:
        """Returns it as JSON without spaces, one argument in the job script."""
        return json.dumps(asdict(self), separators=(",", ":"))


def stage_plan(storage: Storage, checkpoint: Checkpoint) -> StagePlan | None:
    """What the ranks are told for a config; None if nothing is staged."""
    if not storage.stage:
        return None
    default = checkpoint.scratch.path or DEFAULT_FOLDER
    entries = {
        name: StagedSource(
            source=_expanded(str(entry.source)), into=entry.into or default, verify=entry.verify, keep=entry.keep
        )
        for name, entry in storage.stage.items()
    }
    for name, entry in entries.items():
        if known(entry.source) and not is_s3(str(entry.source)):
            _check_places(str(entry.source), entry.into, f"storage.stage.{name}")
    options = ("endpoint", "region", "accelerate", "requester_pays")
    uses_s3 = any(is_s3(str(entry.source)) or not known(entry.source) for entry in entries.values())
    return StagePlan(entries=entries, s3={key: getattr(checkpoint.s3, key) for key in options} if uses_s3 else {})


def _expanded(source: str) -> str:
    return source if is_s3(source) or not known(source) else os.path.normpath(os.path.expanduser(source))


def from_word(word: str) -> StagePlan:
    """Parses the JSON written by `StagePlan.to_json_arg`. Raises ValueError if it is invalid."""
    value = json.loads(word)
    if not isinstance(value, Mapping) or not isinstance(value.get("entries"), Mapping):
        raise ValueError(f"not what is to be staged: {word!r}")
    entries = {str(name): from_fields(StagedSource, entry) for name, entry in value["entries"].items()}
    return StagePlan(entries=entries, s3=dict(value.get("s3") or {}))


FIELDS: tuple[str, ...] = tuple(item.name for item in fields(StagedSource))
"""The keys of an entry."""
