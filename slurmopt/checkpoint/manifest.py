"""What a checkpoint holds and where each byte of it lies: one JSON file, no pickles.

format        1; a newer one is refused
step, attempt, unique, time, world_size, metrics
tensors       name → dtype, shape
paths         name → the keys that lead to it in the nested state
files         [key, encoding, bytes]: payload files of this checkpoint, and of earlier ones for what has not changed
items         [name, offsets, sizes, segments]: a tensor or a part of one (offsets and sizes in elements), or an
              object (offsets and sizes null), in pieces of up to 8 MiB
segments      [file, offset, stored bytes, raw bytes, xxh3_128 of the raw bytes]
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import xxhash

from slurmopt.checkpoint.ledger import Commit, checkpoint_name
from slurmopt.errors import CheckpointError

FORMAT = 1
SEGMENT_BYTES = 8 << 20
_FILE = re.compile(r"step-\d{8,}/[A-Za-z0-9-]+/rank-\d{5,}\.bin")


class Damaged(CheckpointError):
    """Bytes that are not those that were saved."""


class File(NamedTuple):
    """A payload file: its key on the tier, how it is compressed (None or zstd), its length in bytes."""

    key: str
    encoding: str | None
    bytes: int


class Segment(NamedTuple):
    """Up to 8 MiB of an item. `file` is an index into the manifest's files."""

    file: int
    offset: int
    stored: int
    raw: int
    xxh3: str


class Item(NamedTuple):
    """A tensor, a part of one, or an object (offsets and sizes are None)."""

    name: str
    offsets: tuple[int, ...] | None
    sizes: tuple[int, ...] | None
    segments: list[Segment]

    @property
    def bytes(self) -> int:
        return sum(segment.raw for segment in self.segments)


@dataclass
class Manifest:
    """One checkpoint on one tier."""

    step: int
    attempt: int
    unique: str
    time: float
    world_size: int
    tensors: dict[str, tuple[str, tuple[int, ...]]]
    files: list[File]
    items: list[Item]
    paths: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def name(self) -> str:
        return checkpoint_name(self.step, self.unique)

    @property
    def key(self) -> str:
        return f"{self.name}/manifest.json"

    @property
    def references(self) -> tuple[str, ...]:
        """The earlier checkpoints whose files this one needs."""
        return tuple(sorted({folder for file in self.files if (folder := folder_of(file.key)) != self.name}))

    def lacking(self) -> str | None:
        """A tensor of which not every element is here; None where all are whole."""
        here = dict.fromkeys(self.tensors, 0)
        for item in self.items:
            if item.sizes is not None:
                here[item.name] += math.prod(item.sizes)
        return next((name for name, (_, shape) in self.tensors.items() if here[name] != math.prod(shape)), None)

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    def commit(self, encoded: bytes) -> Commit:
        """The ledger's record of this checkpoint."""
        own = {index for index, file in enumerate(self.files) if folder_of(file.key) == self.name}
        segments = [segment for item in self.items for segment in item.segments]
        return Commit(
            step=self.step,
            unique=self.unique,
            attempt=self.attempt,
            time=self.time,
            manifest=self.key,
            manifest_xxh3=xxhash.xxh3_128_hexdigest(encoded),
            bytes=sum(segment.stored for segment in segments if segment.file in own),
            total_bytes=sum(segment.raw for segment in segments),
            world_size=self.world_size,
            references=self.references,
            metrics=self.metrics,
        )


def folder_of(key: str) -> str:
    """The checkpoint that a file lies in."""
    return key.rpartition("/")[0]


def decode(encoded: bytes, commit: Commit) -> Manifest:
    """The manifest that `commit` names. Damaged where it is another or broken, CheckpointError for a newer format."""
    if xxhash.xxh3_128_hexdigest(encoded) != commit.manifest_xxh3:
        raise Damaged(f"{commit.manifest} is not the file that was saved (checksum)")
    try:
        return _manifest(json.loads(encoded), commit)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Damaged(f"{commit.manifest} is no manifest: {error}") from error


def _manifest(values: dict[str, Any], commit: Commit) -> Manifest:
    if values["format"] != FORMAT:
        raise CheckpointError(
            f"{commit.manifest} has format {values['format']} and this slurmopt reads {FORMAT}; "
            "use the version that saved it, or a newer one"
        )
    manifest = Manifest(
        **{
            **values,
            "tensors": {name: (dtype, tuple(shape)) for name, (dtype, shape) in values["tensors"].items()},
            "paths": {name: tuple(path) for name, path in values["paths"].items()},
            "files": [File(*file) for file in values["files"]],
            "items": [
                Item(str(name), _sizes(offsets), _sizes(sizes), [Segment(*segment) for segment in segments])
                for name, offsets, sizes, segments in values["items"]
            ],
        }
    )
    _check(manifest, commit)
    return manifest


def _sizes(values: list[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)


def _check(manifest: Manifest, commit: Commit) -> None:
    """Whatever wrote it: no path leaves the tier, and every segment can be held in memory."""
    if manifest.name != commit.name:
        raise CheckpointError(f"{commit.manifest} is the manifest of {manifest.name}")
    for file in manifest.files:
        if not _FILE.fullmatch(file.key) or file.encoding not in (None, "zstd") or file.bytes < 0:
            raise ValueError(f"{file.key!r} is no payload file")
    for item in manifest.items:
        for segment in item.segments:
            whole = 0 <= segment.file < len(manifest.files) and segment.offset >= 0
            if whole:
                whole = segment.offset + segment.stored <= manifest.files[segment.file].bytes
            if not whole or not 0 < segment.raw <= SEGMENT_BYTES or not 0 < segment.stored <= 2 * SEGMENT_BYTES:
                raise ValueError(f"a segment of {item.name} is out of bounds")
