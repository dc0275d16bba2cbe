"""Reads values of a run's config.yaml without Hydra: plain and unresolved."""

from __future__ import annotations

import re
from typing import Any

from slurmopt.errors import one_line, why_failed
from slurmopt.run_folder.access.files import read_text
from slurmopt.run_folder.layout import RunFolder

_LONGEST_REASON = 200


def group(folder: RunFolder, name: str) -> dict[str, Any]:
    """One group of the stored config; empty where the file cannot be read or has no such group."""
    config = value(folder, name)
    return config if isinstance(config, dict) else {}


def value(folder: RunFolder, name: str) -> Any:
    """The value of the top-level key `name` in the stored config; None where the file cannot be read or has none."""
    return whole(folder).get(name)


def whole(folder: RunFolder) -> dict[str, Any]:
    """The stored config; empty where the file cannot be read."""
    return whole_or_why(folder)[0]


def whole_or_why(folder: RunFolder) -> tuple[dict[str, Any], str | None]:
    """The stored config; where it cannot be read, an empty one and the reason."""
    from yaml import YAMLError

    from slurmopt.config.composition import stored_yaml

    try:
        config = stored_yaml.load(folder.config, exact=False)
    except (OSError, YAMLError) as error:
        return {}, one_line(why_failed(error))[:_LONGEST_REASON]
    return (config, None) if isinstance(config, dict) and config else ({}, "it has no groups")


_LINE = re.compile(r"  ([a-z_]+): ([A-Za-z0-9._+-]+)")


def quick_group(folder: RunFolder, name: str) -> dict[str, Any]:
    """The numbers and words of one group, from the lines that slurmopt writes for them: parsing the files of a thousand
    runs takes seconds. Empty where the file cannot be read; `group` for a file that people have written."""
    try:
        lines = read_text(folder.config).split("\n")
    except (OSError, ValueError):
        return {}
    if f"{name}:" not in lines:
        return group(folder, name)
    found: dict[str, Any] = {}
    for line in lines[lines.index(f"{name}:") + 1 :]:
        if not line.startswith(" "):
            break
        if (match := _LINE.fullmatch(line)) is not None and match[2] != "null":
            found[match[1]] = int(match[2]) if match[2].isdecimal() else match[2]
    return found
