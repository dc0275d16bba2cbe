"""Reads values of a run's config.yaml without Hydra: plain and unresolved."""

from __future__ import annotations

from typing import Any

from slurmopt.run_folder.layout import RunFolder


def group(folder: RunFolder, name: str) -> dict[str, Any]:
    """One group of the stored config; empty where the file cannot be read or has no such group."""
    config = value(folder, name)
    return config if isinstance(config, dict) else {}


def value(folder: RunFolder, name: str) -> Any:
    """The value of the top-level key `name` in the stored config; None where the file cannot be read or has none."""
    return whole(folder).get(name)


def whole(folder: RunFolder) -> dict[str, Any]:
    """The stored config; empty where the file cannot be read."""
    from yaml import YAMLError

    from slurmopt.config.composition import stored_yaml

    try:
        config = stored_yaml.load(folder.config, exact=False)
    except (OSError, YAMLError):
        return {}
    return config if isinstance(config, dict) else {}
