"""What can happen to a file of a run: cut, flipped, replaced by what is no file, or by JSON and YAML of other types."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, 10**400, 1e308, float("nan"), float("inf"), "", "x" * 100_000, "\0", "../../etc/passwd",
    "\x1b[2J", "\ud800", "\uff19", "²", "0-99999999999", "1-9", [], {}, [[]], [None], {"": ""}, {"a": [1, {"b": None}]},
    "node[1-" + "9" * 400 + "]", "${oc.env:HOME}", "${a}", "???", "local-1", "900000000_0", "1e5", 1.5, -0.0,
)  # fmt: skip
_TEXTS = (
    "[" * 100_000, "{" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000, "- " * 20_000, "9" * 5000,
    "\ufeff", "\0" * 5000, "&a {x: *a}\n", "&a [*a, *a]\n", "a: !!bool perhaps\n", "a: !!timestamp x\n", "? [a]\n",
    "a: &a [x, x]\n"
    + "".join(f"{chr(98 + at)}: &{chr(98 + at)} [*{chr(97 + at)}, *{chr(97 + at)}]\n" for at in range(24)),
    "\x1b]0;title\x07", "<<: [1]\n", "a: !!binary x\n", "a: !!python/name:os.system\n", "task: {_target_: '${nope}'}\n",
    '{"event": "end"}\n', '{"event": null}\n', '{"event": {"a": 1}}\n',
    '{"point": 1, "config": {"9999": ""}, "like": 1}\n',
)  # fmt: skip


def damage(path: Path, choice: random.Random) -> str:
    """Does one thing to a file; says what."""
    kind = choice.choice(list(_KINDS))
    _KINDS[kind](path, choice)
    return kind


def _cut(path: Path, choice: random.Random) -> None:
    os.truncate(path, choice.randrange(path.stat().st_size + 1))


def _flip(path: Path, choice: random.Random) -> None:
    data = bytearray(path.read_bytes() or b"x")
    for _ in range(choice.randrange(1, 20)):
        data[choice.randrange(len(data))] = choice.randrange(256)
    path.write_bytes(data)


def _insert(path: Path, choice: random.Random) -> None:
    data, place = path.read_bytes(), choice.randrange(path.stat().st_size + 1)
    text = choice.choice(_TEXTS).encode()
    path.write_bytes(data[:place] + text + data[place:])


def _replace(path: Path, choice: random.Random) -> None:
    path.write_bytes(choice.choice(_TEXTS).encode())


def _append(path: Path, choice: random.Random) -> None:
    with path.open("ab") as file:
        file.write(choice.choice(_TEXTS).encode() + b"\n")


def _no_file(path: Path, choice: random.Random) -> None:
    path.unlink()
    _PUT[choice.randrange(len(_PUT))](path)


def _put_folder(path: Path) -> None:
    path.mkdir()


def _put_socket(path: Path) -> None:
    """Its own name would be too long for one."""
    here = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)


def _put_sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def _put_large(path: Path) -> None:
    """Nothing but holes, and not too large to be read."""
    path.touch()
    os.truncate(path, 15 << 20)


_PUT: tuple[Callable[[Path], None], ...] = (
    os.mkfifo,
    _put_folder,
    _put_socket,
    _put_sparse,
    _put_large,
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: path.symlink_to("/dev/full"),
    lambda path: path.symlink_to(path.name),
    lambda path: path.symlink_to("/nowhere"),
    lambda path: path.symlink_to("/proc/self/mem"),
)


def _gone(path: Path, choice: random.Random) -> None:
    path.unlink()


def _folder_gone(path: Path, choice: random.Random) -> None:
    """The folder of a file becomes a file, a FIFO or a link to itself; deeper down only."""
    folder = path.parent
    if folder.parent.parent.name == "runs":
        _gone(path, choice)
        return
    shutil.rmtree(folder)
    choice.choice([Path.touch, os.mkfifo, lambda path: path.symlink_to(path.name)])(folder)


def _odd_name(path: Path, choice: random.Random) -> None:
    names = (
        "attempt-99999999999999999999",
        "rank-\uff19.log",
        "rank--1.json",
        "attempt-²",
        "0-99999999999",
        "\uff10\uff10001",
        "\udcff",
    )
    path.rename(path.with_name(choice.choice(names)))


def _swap(path: Path, choice: random.Random) -> None:
    """Another value somewhere in its JSON, JSON lines or YAML; text that is neither is cut."""
    try:
        text = path.read_text()
        if path.suffix == ".yaml":
            path.write_text(_swapped_yaml(text, choice), errors="surrogatepass")
            return
        lines = text.splitlines()
        at = choice.randrange(len(lines))
        lines[at] = json.dumps(_swapped(json.loads(lines[at]), choice))
        path.write_text("\n".join(lines) + "\n")
    except (ValueError, yaml.YAMLError):
        _cut(path, choice)


def _swapped_yaml(text: str, choice: random.Random) -> str:
    return yaml.dump(_swapped(yaml.safe_load(text), choice), allow_unicode=False)


def _swapped(value: Any, choice: random.Random) -> Any:
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not keys or choice.random() < 0.2:
        return choice.choice(_VALUES)
    key = choice.choice(keys)
    value[key] = _swapped(value[key], choice)
    return value


_KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "cut": _cut,
    "flipped": _flip,
    "inserted": _insert,
    "replaced": _replace,
    "appended": _append,
    "no file": _no_file,
    "other types": _swap,
    "other types again": _swap,
    "gone": _gone,
    "folder gone": _folder_gone,
    "odd name": _odd_name,
}
