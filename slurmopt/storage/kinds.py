"""The table of storage kinds: each tier that checkpoints can go to, and the module that opens it.

A new kind is a module with `open_store`, an entry here, and a dataclass in `slurmopt/config/tiers.py` that becomes a
field of `slurmopt.config.checkpoint.Checkpoint`. Modules are imported when a store is opened: commands and the launch
read this table, and never import boto3, torch or numpy.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from slurmopt.storage.store import Store


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One storage kind. Plain data: a rank sends it to its writer process."""

    name: str
    """Its group within `checkpoint`, and the tier's name in commands and in the journal."""
    module: str
    """Has `open_store(root, *, deadline, **options) -> Store`; `options` are the config's own fields of this kind."""
    scheme: str | None = None
    """What its places start with, such as `s3://`; None: they are folders."""
    node_local: bool = False
    """Whether each node has its own, which no other node can read and which is lost with the node."""
    packages: tuple[str, ...] = ()
    """Python packages that the module needs."""

    @property
    def is_folder(self) -> bool:
        """Whether its places are folders, which are mounted and have permissions."""
        return self.scheme is None

    @property
    def place_key(self) -> str:
        """The config key that holds its place."""
        return "path" if self.is_folder else "url"

    def open(self, root: str, **options: Any) -> Store:
        """A store on `root`; nothing is made or connected yet. Raises StorageError where a package is missing."""
        store: Store = importlib.import_module(self.module).open_store(root, **options)
        return store


_FOLDER = "slurmopt.storage.folder"
KINDS = {
    kind.name: kind
    for kind in (
        Kind(name="scratch", module=_FOLDER, node_local=True),
        Kind(name="shared", module=_FOLDER),
        Kind(name="s3", module="slurmopt.storage.s3.store", scheme="s3://", packages=("boto3",)),
    )
}
"""All kinds by name, the fastest first."""
FOLDER = Kind(name="folder", module=_FOLDER)
"""A folder that is not a tier of a run's config, such as a fetched checkpoint."""


def kind_of(place: str) -> Kind:
    """The kind of a place that is named without a tier: by its scheme, else a folder."""
    return next((kind for kind in KINDS.values() if kind.scheme and place.startswith(kind.scheme)), FOLDER)


def shared_kinds() -> list[str]:
    """The names of the kinds that all nodes read."""
    return [kind.name for kind in KINDS.values() if not kind.node_local]
