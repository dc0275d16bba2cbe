"""What the login side reads of a run's config.yaml without Hydra: plain values, nothing resolved."""

from __future__ import annotations

from typing import Any

from slurmopt.run_folder.layout import RunFolder


def group(folder: RunFolder, name: str) -> dict[str, Any]:
    """One group of the stored config; empty where the file cannot be read or has no such group."""
    found = value(folder, name)
    return found if isinstance(found, dict) else {}


def value(folder: RunFolder, name: str) -> Any:
    """What stands under `name` at the top of the stored config; None where the file cannot be read or has none."""
    from yaml import YAMLError

    from slurmopt.config.composition import stored_yaml

    try:
        config = stored_yaml.load(folder.config, exact=False)
    except (OSError, YAMLError):
        return None
    return config.get(name) if isinstance(config, dict) else None
