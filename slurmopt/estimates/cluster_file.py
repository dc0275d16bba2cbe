"""Reads clusters to compare: those that ship, and those of a file of the user."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from slurmopt.config.check import did_you_mean
from slurmopt.errors import ConfigError, InputError, one_line, with_place
from slurmopt.planning.clusters.parse import parse
from slurmopt.planning.clusters.preset import Preset
from slurmopt.run_folder.access.files import read_whole

SHIPPED = "presets.yaml"


def shipped_clusters() -> list[Preset]:
    """Those that ship."""
    from slurmopt.config.composition import stored_yaml

    text = resources.files("slurmopt.planning.clusters").joinpath(SHIPPED).read_text(encoding="utf-8")
    return parse(stored_yaml.parse(text), SHIPPED)


def clusters_of(file: str) -> list[Preset]:
    """Those of a file. Raises ConfigError, in one line, where it cannot be read or has nonsense in it."""
    from yaml import YAMLError

    from slurmopt.config.composition import stored_yaml

    place = one_line(file)
    try:
        value = stored_yaml.parse(read_whole(Path(file).expanduser()).decode("utf-8", "replace"))
    except (OSError, ValueError) as error:  # a ValueError for a null byte in the path
        raise ConfigError(f"cannot be read: {one_line(with_place(error))}", place) from error
    except YAMLError as error:
        raise ConfigError(f"is no YAML: {one_line(str(error))[:200]}", place) from error
    return parse(value, file)


def selected(file: str | None, only: str | None) -> list[Preset]:
    """The clusters of `file`, or those that ship; or the ones that `only` names, separated by commas, which may be of
    both. Raises InputError for a name that is in neither."""
    own = [] if file is None else clusters_of(file)
    if only is None:
        return own or shipped_clusters()
    known = {each.name: each for each in [*shipped_clusters(), *own]}
    names = list(dict.fromkeys(name.strip() for name in only.split(",")))
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise InputError(f"--only: no cluster {one_line(repr(name))[:60]}{hint}; valid: {', '.join(known)}")
    return [known[name] for name in names]
