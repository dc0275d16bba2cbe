"""The addresses of this node's network interfaces: getifaddrs(3), which Python does not have."""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterator


class _InterfaceAddress(ctypes.Structure):
    """struct ifaddrs of <ifaddrs.h>, up to the field that is read."""


_InterfaceAddress._fields_ = [
    ("next", ctypes.POINTER(_InterfaceAddress)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def interface_addresses() -> Iterator[tuple[str, str]]:
    """Each address of this node with the name of its interface."""
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_InterfaceAddress)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        return
    try:
        entry = first
        while entry:
            address = _text(entry.contents.address)
            if address is not None:
                yield address, entry.contents.name.decode()
            entry = entry.contents.next
    finally:
        libc.freeifaddrs(first)


def _text(address: int | None) -> str | None:
    """A `struct sockaddr *` as text; None for families other than IPv4 and IPv6."""
    if not address:
        return None
    (family,) = struct.unpack("=H", ctypes.string_at(address, 2))
    if family == socket.AF_INET:
        return socket.inet_ntop(family, ctypes.string_at(address + 4, 4))
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, ctypes.string_at(address + 8, 16))
    return None
