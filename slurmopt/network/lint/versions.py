"""The versions of the libraries: given, or those that this machine has."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from slurmopt.errors import InputError
from slurmopt.network.facts import installed as on_this_machine
from slurmopt.network.versions import Version, parse

TITLES = {"nccl": "NCCL", "plugin": "aws-ofi-nccl", "libfabric": "libfabric", "torch": "torch"}
FIELDS = {"nccl": "nccl", "aws_ofi_nccl": "plugin", "libfabric": "libfabric", "torch": "torch"}
"""The field of each table of variables."""


@dataclass(frozen=True)
class Versions:
    """The versions that are known; None: not known."""

    nccl: Version | None = None
    plugin: Version | None = None
    libfabric: Version | None = None
    torch: Version | None = None

    def of(self, field: str) -> Version | None:
        """The version of a library, by its field."""
        found: Version | None = getattr(self, field)
        return found


def given(field: str, text: str) -> Version:
    """The version in an option of the command line. Raises InputError."""
    try:
        return parse(text)
    except ValueError as error:
        raise InputError(f"--{field}: {error}") from error


def installed() -> Versions:
    """What this machine and this Python have. Nothing is imported or started."""
    found = on_this_machine.versions(Path("/"), os.environ, asks_libfabric=False)
    return Versions(**{name: _parsed(getattr(found, name)) for name in TITLES})


def _parsed(text: str | None) -> Version | None:
    try:
        return None if text is None else parse(text)
    except ValueError:
        return None
