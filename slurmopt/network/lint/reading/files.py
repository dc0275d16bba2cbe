"""Reads files, and finds those of a folder that may set variables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from slurmopt.errors import InputError, one_line
from slurmopt.network.lint.names import NAME
from slurmopt.network.lint.reading import container_files, shell
from slurmopt.network.lint.setting import Setting
from slurmopt.run_folder.access.files import read_whole

_LARGEST = 4 * 2**20
_YAML = (".yaml", ".yml")
_SCRIPTS = (".sh", ".bash", ".zsh", ".sbatch", ".slurm", ".job", ".sub", ".batch")
_LINES = (".env", ".conf")
_DEFINITIONS = (".def",)
_DOCKERFILE = re.compile(r"(?i)(dockerfile|containerfile)([.-].*)?|.*\.(dockerfile|containerfile)")


def of_file(path: Path) -> list[Setting]:
    """The variables that a file sets. Raises OSError, and InputError for a file that is no text or no valid YAML."""
    text = read_whole(path, _LARGEST).decode("utf-8", "surrogateescape")
    if "\0" in text:
        raise InputError(f"{one_line(str(path))}: is no text file")
    if NAME.search(text) is None:
        return []
    return _parsed(text, path)


def _parsed(text: str, path: Path) -> list[Setting]:
    name, place = path.name.lower(), one_line(str(path))
    if name.endswith(_YAML):
        import yaml

        from slurmopt.network.lint.reading import yaml_text

        try:
            return yaml_text.settings(text, place)
        except yaml.YAMLError as error:
            raise InputError(f"{place}: is no valid YAML: {one_line(' '.join(str(error).split()))}") from error
    if _DOCKERFILE.fullmatch(name):
        return container_files.dockerfile(text, place)
    if name.endswith(_DEFINITIONS) or name == "singularity":
        return container_files.definition(text, place)
    if name.endswith(_LINES) or name == "environment":
        return container_files.lines(text, place)
    return shell.settings(text, place)


def in_folder(folder: Path) -> Iterator[Path]:
    """The files below a folder whose names say that they may set variables; hidden folders and links are left out.
    Raises OSError where the folder cannot be read."""
    os.listdir(folder)
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(names) if _may_set(name.lower()))


def _may_set(name: str) -> bool:
    return name.endswith((*_YAML, *_SCRIPTS, *_LINES, *_DEFINITIONS)) or bool(_DOCKERFILE.fullmatch(name))
