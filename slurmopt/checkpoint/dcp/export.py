"""Exports a checkpoint to a torch.save file or to safetensors, with only a few pieces in memory at a time.

It creates a file with space for every tensor; then it reads, verifies and writes each piece to its place.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.serialization import skip_data

from slurmopt.checkpoint.format.manifest import Item, Manifest
from slurmopt.checkpoint.format.segments import Extent, extents, read_extent
from slurmopt.checkpoint.format.state import take_apart
from slurmopt.checkpoint.format.tensor_bytes import memory_of
from slurmopt.checkpoint.saved_state import read_state
from slurmopt.errors import CheckpointError, InputError
from slurmopt.storage.memory import staging
from slurmopt.storage.store import Store

_WORKERS = 2
_SUM_BYTES = 8 << 20
_SAFETENSORS = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32",
    "int64": "I64", "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0", "complex64": "C64",
}  # fmt: skip
"""The names of dtypes in the safetensors format."""


def to_torch(store: Store, manifest: Manifest, path: Path, key: str | None) -> bool:
    """Writes a torch.save file; returns whether torch.load(weights_only=True) can read it."""
    mode = FakeTensorMode()  # tensors without memory; those within objects remain real

    def fake(name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        with mode:
            tensor = torch.empty(shape, dtype=dtype)
        tensor.saved_name = name
        return tensor

    state = chosen(read_state(store, manifest, fake), key, manifest)
    with skip_data(materialize_fake_tensors=True):
        torch.save(state, path)
    return _fill_archive(store, manifest, path, state)


def to_safetensors(store: Store, manifest: Manifest, path: Path, key: str | None) -> None:
    """Writes all tensors, or those of one entry, by their dotted names. The format contains only tensors."""
    tensors = _by_name(chosen(read_state(store, manifest), key, manifest), key)
    if not tensors:
        raise CheckpointError(f"{manifest.name}{f', {key},' if key else ''} has no tensors to export")
    # Larger element types first, so that each tensor starts at a multiple of its element size.
    ordered = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": {"step": str(manifest.step), "checkpoint": manifest.name}}
    end, starts = 0, {}
    for name in ordered:
        tensor = tensors[name]
        starts[name], length = end, tensor.numel() * tensor.element_size()
        end += length
        header[name] = {"dtype": _word(name, tensor), "shape": list(tensor.shape), "data_offsets": [starts[name], end]}
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with path.open("xb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        file.truncate(8 + len(head) + end)
        file.flush()
        places = {tensors[name].saved_name: [8 + len(head) + start] for name, start in starts.items()}
        fill(store, manifest, file.fileno(), places)


def chosen(state: dict[str, Any], key: str | None, manifest: Manifest) -> Any:
    """The whole state, or its entry `key`. InputError, which lists the entries, where there is none."""
    if key is None:
        return state
    if key not in state:
        raise InputError(f"{manifest.name} has no entry {key!r}; it has: {', '.join(map(str, state))}")
    return state[key]


def fill(store: Store, manifest: Manifest, descriptor: int, places: dict[str, list[int]]) -> None:
    """Writes the saved tensors into an open file; `places` are the offsets of each tensor in it."""
    wanted = []
    for item in manifest.items:
        if item.offsets is None or item.name not in places:
            continue
        start = 0
        for segment in item.segments:
            wanted.append(((item, start), manifest.files[segment.file], segment))
            start += segment.raw
    ranges = extents(wanted)

    def copy(share: list[Extent[tuple[Item, int]]]) -> None:
        longest = max((extent.length for extent in share), default=0)
        memory = staging(longest)
        for extent in share:
            for (item, start), _, raw in read_extent(store, extent, memory):
                for first, offset, length in _runs(manifest, item, start, len(raw)):
                    for place in places[item.name]:
                        _write(descriptor, raw[first : first + length], place + offset)

    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="slurmopt-export") as pool:
        for worker in [pool.submit(copy, ranges[first::_WORKERS]) for first in range(_WORKERS)]:
            worker.result()


def _runs(manifest: Manifest, item: Item, start: int, length: int) -> Iterator[tuple[int, int, int]]:
    """Maps the bytes `start` to `start + length` of a part of a tensor to the whole tensor.

    Yields (first byte within these, offset in the tensor, count): one for a part of complete rows, else many.
    """
    shape = tuple(manifest.tensors[item.name][1])
    assert item.offsets is not None
    assert item.sizes is not None
    width = item.bytes // max(1, torch.Size(item.sizes).numel())
    # Complete trailing dimensions form one run with the dimension before them.
    whole = len(shape)
    while whole and item.sizes[whole - 1] == shape[whole - 1]:
        whole -= 1
    inner = max(0, whole - 1)
    run = torch.Size(item.sizes[inner:]).numel() * width
    strides = [torch.Size(shape[dimension + 1 :]).numel() * width for dimension in range(len(shape))]
    base = sum(offset * stride for offset, stride in zip(item.offsets, strides, strict=True))
    at = start
    while at < start + length:
        index, within = divmod(at, run)
        offset = base + within
        for dimension in reversed(range(inner)):
            index, position = divmod(index, item.sizes[dimension])
            offset += position * strides[dimension]
        count = min(run - within, start + length - at)
        yield at - start, offset, count
        at += count


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        count = os.pwrite(descriptor, data, offset)
        data, offset = data[count:], offset + count


def _by_name(state: Any, key: str | None) -> dict[str, torch.Tensor]:
    """The placeholders by their saved names, without the name of the entry `key`."""
    tensors: dict[str, torch.Tensor] = {}

    def visit(value: Any) -> None:
        if hasattr(value, "saved_name"):
            tensors[value.saved_name.removeprefix(f"{key}.")] = value
        elif isinstance(value, (dict, list, tuple)):
            for each in value.values() if isinstance(value, dict) else value:
                visit(each)

    visit(state)
    return tensors


def _word(name: str, tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in _SAFETENSORS:
        raise CheckpointError(f"{name} is {dtype}, which safetensors has no word for; valid: --format torch or dcp")
    return _SAFETENSORS[dtype]


def _fill_archive(store: Store, manifest: Manifest, path: Path, state: Any) -> bool:
    """Writes the tensors into an archive that torch.save has created without their data."""
    with FakeTensorMode():
        laid_out, plain = _loaded(path)
    tensors: dict[str, torch.Tensor] = {}
    archived: dict[str, torch.Tensor] = {}
    take_apart("state", state, tensors)
    take_apart("state", laid_out, archived)
    places: dict[str, list[int]] = {}
    with path.open("r+b") as file:
        for name, tensor in tensors.items():
            offset = archived[name].untyped_storage()._checkpoint_offset
            if hasattr(tensor, "saved_name"):
                places.setdefault(tensor.saved_name, []).append(offset)
            else:  # a tensor within an object is in memory already
                _write(file.fileno(), memory_of(tensor.contiguous()), offset)
        records = _records(path)
        if len(records) != len(tensors):
            raise CheckpointError(f"{manifest.name} has tensors within objects of other types; valid: --format dcp")
        fill(store, manifest, file.fileno(), places)
        file.flush()
        _put_sums(path, records)
    return plain


def _loaded(path: Path) -> tuple[Any, bool]:
    """Loads the archive; returns it and whether weights_only=True worked. This process wrote it, so it is trusted."""
    try:
        return torch.load(path, weights_only=True), True
    except Exception:  # noqa: BLE001  # torch raises various exceptions for a pickle that it refuses
        return torch.load(path, weights_only=False), False


def _records(path: Path) -> list[zipfile.ZipInfo]:
    with zipfile.ZipFile(path) as archive:
        return [entry for entry in archive.infolist() if entry.filename.rpartition("/")[0].endswith("/data")]


def _put_sums(path: Path, records: list[zipfile.ZipInfo]) -> None:
    """Writes the CRC-32 of each tensor, which a ZIP archive has after the data and in its directory."""
    with zipfile.ZipFile(path) as archive:
        entries, at = archive.infolist(), archive.start_dir
    wanted = {entry.header_offset for entry in records}
    with path.open("r+b") as file:
        descriptor = file.fileno()
        for entry in entries:
            if entry.header_offset in wanted:
                crc, end = _sum(descriptor, entry)
                _write(descriptor, memoryview(struct.pack("<I", crc)), at + 16)
                if os.pread(descriptor, 4, end) == b"PK\x07\x08":
                    _write(descriptor, memoryview(struct.pack("<I", crc)), end + 4)
            at += 46 + sum(struct.unpack("<HHH", os.pread(descriptor, 6, at + 28)))


def _sum(descriptor: int, entry: zipfile.ZipInfo) -> tuple[int, int]:
    """The CRC-32 of an entry's data, and the end of the data."""
    name, extra = struct.unpack("<HH", os.pread(descriptor, 4, entry.header_offset + 26))
    start = entry.header_offset + 30 + name + extra
    end, crc = start + entry.file_size, 0
    for at in range(start, end, _SUM_BYTES):
        crc = zlib.crc32(os.pread(descriptor, min(_SUM_BYTES, end - at), at), crc)
    return crc, end
