"""Reads the facts about a node from a file: `slurmopt network show --json` writes it on the node."""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from slurmopt.errors import InputError, one_line, why_failed
from slurmopt.network.facts.node_facts import GPU_LINKS, INTERFACE_KINDS, RDMA_KINDS, NodeFacts
from slurmopt.network.versions import parse
from slurmopt.run_folder.access.files import open_regular

_LARGEST = 1 << 20
_NAME = re.compile(r"[^\s,/]{1,63}")  # IFNAMSIZ of Linux is 16, IB_DEVICE_NAME_MAX is 64
_SHOWN = 40


def read(path: Path) -> NodeFacts:
    """The facts in a file, as JSON. What a file lacks is not known. Raises InputError, with the file and the key."""
    try:
        with open_regular(path) as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise InputError(f"{one_line(os.fspath(path))}: {why_failed(error)}") from error
    if len(content) > _LARGEST:
        raise InputError(f"{one_line(os.fspath(path))}: more than 1 MiB are no facts about a node")
    try:
        value = msgspec.json.decode(content)
        facts = msgspec.convert(_own_part(value), NodeFacts)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{one_line(os.fspath(path))}: {_at(str(error))}") from error
    for problem in [*_unknown(_own_part(value), NodeFacts, ""), *_lies(facts)]:
        raise InputError(f"{one_line(os.fspath(path))}: {problem}")
    return facts


def _own_part(value: Any) -> Any:
    """The facts in what `slurmopt network show --json` printed; else the value itself."""
    data = value.get("data") if isinstance(value, dict) else None
    return data["facts"] if isinstance(data, dict) and "facts" in data else value


def _at(message: str) -> str:
    """A message of msgspec, the key first: `$.rdma[...].kind`."""
    what, _, where = message.partition(" - at `$")
    return one_line(f"{where.rstrip('`').lstrip('.')}: {what}" if where else what)


def _unknown(value: Any, kind: Any, place: str) -> Iterator[str]:
    """Keys that no fact has."""
    hints = get_type_hints(kind)
    valid = [item.name for item in fields(kind)]
    for key, item in value.items() if isinstance(value, Mapping) else ():
        if key not in valid:
            close = difflib.get_close_matches(key, valid, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            yield one_line(f"{place}{key}: no such key{hint}; valid: {', '.join(valid)}")
            continue
        inner = next((one for one in (hints[key], *get_args(hints[key])) if is_dataclass(one)), None)
        for number, each in enumerate(item if isinstance(item, list) else [item]):
            where = f"{place}{key}[{number}]." if isinstance(item, list) else f"{place}{key}."
            yield from _unknown(each, inner, where) if inner is not None else ()


def _lies(facts: NodeFacts) -> Iterator[str]:
    """What cannot be so."""
    for number, one in enumerate(facts.interfaces):
        yield from _not_among(one.kind, INTERFACE_KINDS, f"interfaces[{number}].kind")
        yield from _negative(one.gbits, f"interfaces[{number}].gbits")
        yield from _no_addresses(one.addresses, f"interfaces[{number}].addresses")
        yield from _no_name(one.name, f"interfaces[{number}].name")
    for number, device in enumerate(facts.rdma):
        yield from _not_among(device.kind, RDMA_KINDS, f"rdma[{number}].kind")
        yield from _negative(device.gbits, f"rdma[{number}].gbits")
        yield from _negative(device.gid_index, f"rdma[{number}].gid_index")
        yield from _no_name(device.name, f"rdma[{number}].name")
    names = [one.name for one in facts.interfaces]
    if facts.towards_peers is not None:
        yield from _not_among(facts.towards_peers, names, "towards_peers")
    if facts.gpu_links is not None:
        yield from _not_among(facts.gpu_links, GPU_LINKS, "gpu_links")
    yield from _negative(facts.gpus, "gpus")
    for item in fields(facts.versions):
        version = getattr(facts.versions, item.name)
        try:
            parse("0" if version is None else version)
        except ValueError as error:
            yield one_line(f"versions.{item.name}: {error}")


def _not_among(value: str, valid: tuple[str, ...] | list[str], key: str) -> Iterator[str]:
    if value not in valid:
        yield one_line(f"{key}: {value!r} is not valid; valid: {', '.join(valid) or 'none, as there is no interface'}")


def _no_name(name: str, key: str) -> Iterator[str]:
    """NCCL takes a list of names, separated by commas."""
    if not _NAME.fullmatch(name):
        yield one_line(f"{key}: {name[:_SHOWN]!r} is not valid; valid: a name such as ens5 or mlx5_0")


def _negative(value: float | None, key: str) -> Iterator[str]:
    if value is not None and not 0 <= value < 1e6:
        yield f"{key}: {value} is not valid; valid: 0 or more"


def _no_addresses(addresses: tuple[str, ...], key: str) -> Iterator[str]:
    for address in addresses:
        try:
            ipaddress.ip_address(address)
        except ValueError:
            yield one_line(f"{key}: {address!r} is not an IP address")
