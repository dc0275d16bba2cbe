"""The wire format of the attempt's store: lists of byte strings, each preceded by its length."""

from __future__ import annotations

import struct
from collections.abc import Iterable

_LENGTH = struct.Struct(">I")


def encoded(items: Iterable[bytes]) -> bytes:
    body = b"".join(_LENGTH.pack(len(item)) + item for item in items)
    return _LENGTH.pack(len(body)) + body


def decoded(data: bytearray) -> list[bytes] | None:
    """Removes the first complete list from the beginning of `data` and returns it; None if none is complete."""
    if len(data) < _LENGTH.size:
        return None
    end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    if len(data) < end:
        return None
    items, at = [], _LENGTH.size
    while at < end:
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(data, at)[0]
        items.append(bytes(data[start:at]))
    del data[:end]
    return items
