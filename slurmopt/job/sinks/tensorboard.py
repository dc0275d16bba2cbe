"""Writes event files for TensorBoard, with the standard library alone.

A rank needs no package for it, and a command's Python may have none. The files are those of TensorFlow's SummaryWriter:
records of TFRecord with `Event` messages of protocol buffers, of which four fields are needed (`encode_*` below).

All attempts write to one folder. TensorBoard reads its files in the order of their names, which begin with the attempt.
Each begins with a SessionLog START: of an attempt that goes on from step S, at S + 1. TensorBoard then hides what
earlier attempts wrote at that step and later ones, as with `purge_step` of torch's SummaryWriter, but not at the first
START of a folder. Its faster loader looks at the steps of the points alone, and hides from the first that is written
again.
"""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from slurmopt.config.metrics import TensorBoard
from slurmopt.job.sinks.record import NotWritten, Place, Record, Unusable
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import make_folders, open_append
from slurmopt.run_folder.json_values import as_int

_MASK_DELTA = 0xA282EAD8
_START = 1
"""SessionLog.SessionStatus.START"""


def open_sink(options: TensorBoard, place: Place) -> EventFiles:
    """The event files of this node."""
    return EventFiles(folder_of(options, place), options.hardware, place)


def folder_of(options: TensorBoard, place: Place) -> Path:
    """The folder to give to `tensorboard --logdir`. Raises Unusable."""
    if options.folder == "auto":
        return place.folder.tensorboard
    path = Path(place.filled(options.folder or "", "metrics.tensorboard.folder")).expanduser()
    if not path.is_absolute():
        raise Unusable(f"metrics.tensorboard.folder: {str(path)!r} is no absolute path")
    return path / place.folder.name / place.folder.id


class EventFiles:
    """The event file of the training, and the one of the node's measurements."""

    def __init__(self, folder: Path, hardware: bool, place: Place) -> None:
        self._place = place
        self._training = EventFile(folder, place)
        self._hardware = EventFile(folder / "hardware" / place.node, place) if hardware else None

    def write(self, records: Sequence[Record]) -> None:
        training = [record for record in records if not record.hardware and record.values]
        self._write(self._training, training, {})
        if self._hardware is not None:
            # gpu0.power as gpu0/power: TensorBoard makes a group of what is before the slash.
            rows = [record for record in records if record.hardware]
            self._write(self._hardware, rows, {".": "/"})

    def close(self, outcome: str | None) -> None:
        self._training.close()
        if self._hardware is not None:
            self._hardware.close()

    def _write(self, file: EventFile, records: list[Record], renamed: Mapping[str, str]) -> None:
        if not records:
            return
        if not file.is_open:
            file.open(self._first_step(records[0].step or 0))
        file.append(
            [
                encode_scalars(
                    record.time,
                    record.step or 0,
                    {_tag(name, renamed): value for name, value in record.values.items()},
                )
                for record in records
            ]
        )

    def _first_step(self, step: int) -> int:
        """The step from which on earlier attempts are to be hidden. `step`: that of the first record."""
        restored = [
            as_int(event.get("step"))
            for event in events.read(self._place.folder.events, "restored")
            if event.get("attempt") == self._place.attempt
        ]
        return min([step, *(known + 1 for known in restored if known is not None)])


def _tag(name: str, renamed: Mapping[str, str]) -> str:
    for old, new in renamed.items():
        name = name.replace(old, new, 1)
    return name


class EventFile:
    """One event file, made when its first record comes. A write that fails leaves nothing of it behind."""

    def __init__(self, folder: Path, place: Place) -> None:
        name = f"events.out.tfevents.{place.attempt:06d}.{int(time.time()):010d}.{place.node}.{os.getpid()}"
        self._path = folder / name
        self._descriptor: int | None = None

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    def open(self, first_step: int) -> None:
        """Makes the file, and hides the steps of earlier attempts from `first_step` on. Raises NotWritten."""
        now = time.time()
        try:
            make_folders(self._path.parent)
            self._descriptor = open_append(self._path)
            self.append([encode_version(now), encode_start(now, first_step)])
        except (OSError, NotWritten) as error:
            self.close()
            raise NotWritten(str(error)) from error

    def append(self, messages: Sequence[bytes]) -> None:
        """Appends `Event` messages. Raises NotWritten."""
        assert self._descriptor is not None
        data = b"".join(map(framed, messages))
        size = os.fstat(self._descriptor).st_size
        try:
            if os.write(self._descriptor, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        except OSError as error:
            os.ftruncate(self._descriptor, size)  # a torn record would hide all that follow
            raise NotWritten(f"{self._path} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def framed(data: bytes) -> bytes:
    """A record of TFRecord: its length, the checksum of that, the data, and the checksum of the data."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(length)) + data + struct.pack("<I", _masked(data))


def encode_version(at: float) -> bytes:
    """The first record of a file: field 3, `file_version`."""
    return _wall_time(at) + _bytes(3, b"brain.Event:2")


def encode_start(at: float, step: int) -> bytes:
    """Field 7, `session_log`, with the status START."""
    return _wall_time(at) + _integer(2, step) + _bytes(7, _integer(1, _START))


def encode_scalars(at: float, step: int, values: Mapping[str, float]) -> bytes:
    """Field 5, `summary`: for each number a `Value` with `tag` (1) and `simple_value` (2)."""
    summary = b"".join(
        _bytes(1, _bytes(1, tag.encode("utf-8", "replace")) + b"\x15" + _float(value)) for tag, value in values.items()
    )
    return _wall_time(at) + _integer(2, step) + _bytes(5, summary)


def _float(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:  # larger than a float of 32 bits
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def _wall_time(at: float) -> bytes:
    return b"\x09" + struct.pack("<d", at)


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC32C = _table()
"""Of the polynomial of Castagnoli, bits reversed (RFC 3720, B.4)."""


def crc32c(data: bytes) -> int:
    """The checksum of TFRecord before it is masked."""
    value = 0xFFFF_FFFF
    for byte in data:
        value = _CRC32C[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFF_FFFF


def _masked(data: bytes) -> int:
    value = crc32c(data)
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFF_FFFF
