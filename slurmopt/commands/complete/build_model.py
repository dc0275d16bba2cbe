"""Makes the model of a launch: Hydra composes the config, and the schema tells types, values and meanings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any

from slurmopt.commands.complete.config_folders import folders
from slurmopt.config.field_docs import field_docs
from slurmopt.config.schema import GROUPS
from slurmopt.errors import ConfigError
from slurmopt.runs.recovery.changed_config import FIXED

_NOTHING_VALID = "\0"
"""A dataclass that is made with it says what would be valid."""
_DEEPEST = 5
_MOST_OPTIONS = 500
_FIRST_COMMENT = re.compile(r"\A(?:# @package.*\n)?#+(?! *@) *(\S.*)")


def build(config_dir: str | None, choices: list[str]) -> dict[str, Any]:
    """The model. Where the choices do not compose, it has no keys of the user: the launch will say why."""
    keys = {path: facts for name, kind in GROUPS.items() for path, facts in _schema(kind, name)}
    chosen, config = _composed(config_dir, choices)
    for path, value in _leaves(config, ""):
        if path in keys:
            keys[path]["now"] = _shown(value)
        else:
            values = ["true", "false"] if isinstance(value, bool) else None
            keys[path] = {"type": "", "text": "", "now": _shown(value), "values": values, "own": True}
    return {"keys": keys, "groups": _groups(config_dir), "chosen": chosen, "fixed": list(FIXED)}


def _composed(config_dir: str | None, choices: list[str]) -> tuple[list[str], dict[str, Any]]:
    from omegaconf import OmegaConf

    from slurmopt.config.composition.compose import compose

    try:
        config = compose(choices, config_dir)
    except ConfigError:
        return [*GROUPS, "cluster"], {}
    groups = OmegaConf.to_container(config.hydra.runtime.choices)
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(groups, dict)
    assert isinstance(plain, dict)
    plain.pop("hydra", None)
    return [str(name) for name in groups if not str(name).startswith("hydra/")], {str(k): v for k, v in plain.items()}


def _schema(kind: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    docs = field_docs(kind)
    for field in fields(kind):
        if is_dataclass(nested := field.default_factory):
            yield from _schema(nested, f"{path}.{field.name}")
            continue
        facts = {"type": str(field.type), "text": docs.get(field.name, ""), "now": _default(field), "own": False}
        yield f"{path}.{field.name}", {**facts, "values": _values(kind, field)}


def _values(kind: Any, field: Field[Any]) -> list[str] | None:
    """The valid values of a field, as the checks of its dataclass tell them."""
    accepted = {part.strip() for part in str(field.type).split("|")}
    if accepted <= {"bool", "None"}:
        return ["true", "false"]
    try:
        kind(**{field.name: _NOTHING_VALID})
    except ConfigError as error:
        named = (error.key or "").rpartition(".")[2] == field.name
        return error.valid if named else None
    except (TypeError, ValueError, AttributeError):  # it is no text at all
        return None
    return None


def _default(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return _shown(field.default)
    return _shown(field.default_factory()) if field.default_factory is not MISSING else ""


def _shown(value: Any) -> str:
    words = {"None": "null", "True": "true", "False": "false", "": '""'}
    return words.get(str(value), str(value))[:60]


def _leaves(node: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in node.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{path}.")
        else:
            yield path, value


def _groups(config_dir: str | None) -> dict[str, dict[str, str]]:
    """The options of each group; those of the user's folder count where both have one."""
    found: dict[str, dict[str, str]] = {}
    for folder in reversed(folders(config_dir)):
        for group, option, path in _options(folder, "", 0):
            found.setdefault(group, {})[option] = _comment(path)
    return found


def _options(folder: Path, group: str, depth: int) -> Iterator[tuple[str, str, Path]]:
    try:
        entries = sorted(folder.iterdir())[:_MOST_OPTIONS]
    except OSError:
        return
    for entry in entries:
        if entry.suffix == ".yaml" and group:
            yield group, entry.stem, entry
        elif depth < _DEEPEST and entry.name[:1] not in (".", "_") and entry.is_dir():
            yield from _options(entry, f"{group}/{entry.name}".lstrip("/"), depth + 1)


def _comment(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            found = _FIRST_COMMENT.match(file.read(1000))
    except (OSError, UnicodeDecodeError):
        return ""
    return found[1] if found else ""
