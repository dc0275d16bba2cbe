"""Power loss: what a disk may hold after it, from the system calls that strace recorded.

A kill keeps what the kernel has in memory; power loss does not. What was written to a file is certain only once that
file was synced, a name only once its folder was. Everything later may be there or not, in any combination.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

CALLS = (
    "openat,write,pwrite64,fsync,fdatasync,link,linkat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,"
    "sendto,ftruncate"
)
STRACE = ["strace", "-f", "-y", "-xx", "-s", "4000000", "-e", f"trace={CALLS}"]
_BLOCK = 4096
_LINE = re.compile(r"(\d+) +(?:<\.\.\. \w+ resumed>)?(.*)")
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)(.*)", re.DOTALL)
_DESCRIPTOR = re.compile(r"-?\d+<([^>]*)>")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


@dataclass
class Call:
    """One system call that changed something below the root, or told somebody. Paths are relative to the root."""

    kind: str
    path: str = ""
    other: str = ""
    offset: int = 0
    data: bytes = b""
    inode: int = 0


@dataclass
class Disk:
    """Names, and what they lead to: an inode's number, or None for a folder."""

    names: dict[str, int | None] = field(default_factory=dict)
    contents: dict[int, bytearray] = field(default_factory=dict)

    def key(self) -> int:
        return hash(tuple((name, inode and bytes(self.contents[inode])) for name, inode in sorted(self.names.items())))

    def lay_out(self, root: Path) -> None:
        """Makes a folder of it; what lies in a folder that is not there is gone with it."""
        for name, inode in sorted(self.names.items()):
            path = root / name
            if not path.parent.is_dir():
                continue
            if inode is None:
                path.mkdir()
            else:
                path.write_bytes(self.contents[inode])


def read(trace: Path, root: Path) -> list[Call]:
    """The calls of all threads, in the order in which they returned."""
    started: dict[str, str] = {}
    found: list[Call] = []
    inodes: dict[str, int] = {}
    for line in trace.read_text().splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        thread, text = match.groups()
        if text.endswith("<unfinished ...>"):
            started[thread] = text.removesuffix("<unfinished ...>")
            continue
        call = _CALL.match(started.pop(thread, "") + text if "resumed>" in line[:60] else text)
        if call is not None and int(call[3]) >= 0:
            found += _understood(call[1], call[2], call[4], str(root) + "/", inodes, int(call[3]))
    return found


def _understood(
    name: str, arguments: str, result: str, root: str, inodes: dict[str, int], count: int
) -> Iterator[Call]:
    texts = [bytes.fromhex(each.replace("\\x", "")) for each in _TEXT.findall(arguments)]
    descriptor = _DESCRIPTOR.match(arguments)
    path = _decoded(descriptor[1]) if descriptor else ""
    if name == "openat" and "O_CREAT" in arguments:
        path = _decoded(result.strip().strip("<>"))
        if path.startswith(root) and path not in inodes:
            inodes[path] = max(inodes.values(), default=0) + 1
            yield Call("create", path.removeprefix(root), inode=inodes[path])
    elif name in ("write", "pwrite64") and path in inodes:
        offset = int(arguments.rpartition(", ")[2]) if name == "pwrite64" else -1
        yield Call("write", path.removeprefix(root), offset=offset, data=texts[0][:count], inode=inodes[path])
    elif name in ("write", "sendto") and texts and b'"is": "committed"' in texts[0]:
        yield Call("told", data=texts[0])
    elif name in ("fsync", "fdatasync") and path.startswith(root.rstrip("/")):
        yield Call("sync", path.removeprefix(root.rstrip("/")).lstrip("/"), inode=inodes.get(path, 0))
    elif name in ("mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "link", "linkat", "rename", "renameat"):
        yield from _named(name.removesuffix("at"), [text.decode() for text in texts], root, inodes)


def _named(name: str, paths: list[str], root: str, inodes: dict[str, int]) -> Iterator[Call]:
    if not paths[0].startswith(root):
        return
    inside = [path.removeprefix(root) for path in paths]
    inode = inodes.get(paths[0], 0)
    if name in ("unlink", "rename"):
        inodes.pop(paths[0], None)
    if name in ("link", "rename"):
        inodes[paths[1]] = inode
    yield Call(name, inside[0], inside[1] if len(inside) > 1 else "", inode=inode)


def _decoded(text: str) -> str:
    return re.sub(r"\\x([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), text)


def told(calls: list[Call], cut: int) -> int:
    """The newest step that had been reported durable when the power went."""
    words = [call.data for call in calls[:cut] if call.kind == "told" or call.path == "events.jsonl"]
    steps = [re.search(rb'"step": (\d+)', data) for data in words if b"committed" in data or b'"checkpoint"' in data]
    return max((int(step[1]) for step in steps if step), default=0)


def after(calls: list[Call], cut: int, chance: float, rng: random.Random) -> Disk:
    """The disk after the power went before call `cut`; what was not certain is there with this chance."""
    disk = Disk()
    synced_names, synced_inodes = _certain(calls[:cut])
    for number, call in enumerate(calls[:cut]):
        folder = call.path.rpartition("/")[0]
        if call.kind == "write":
            _write(disk, call, number < synced_inodes.get(call.inode, -1), chance, rng)
        elif call.kind not in ("sync", "told") and (number < synced_names.get(folder, -1) or rng.random() < chance):
            _name(disk, call)
    return disk


def _certain(calls: list[Call]) -> tuple[dict[str, int], dict[int, int]]:
    """Of each folder and file the last sync."""
    syncs = [(number, call) for number, call in enumerate(calls) if call.kind == "sync"]
    return (
        {call.path: number for number, call in syncs if not call.inode},
        {call.inode: number for number, call in syncs if call.inode},
    )


def _write(disk: Disk, call: Call, certain: bool, chance: float, rng: random.Random) -> None:
    """Block by block: a large write need not be there as a whole."""
    content = disk.contents.setdefault(call.inode, bytearray())
    start = len(content) if call.offset < 0 else call.offset
    for at in range(0, len(call.data), _BLOCK):
        if certain or rng.random() < chance:
            piece = call.data[at : at + _BLOCK]
            content.extend(bytes(max(0, start + at + len(piece) - len(content))))
            content[start + at : start + at + len(piece)] = piece


def _name(disk: Disk, call: Call) -> None:
    if call.kind == "mkdir":
        disk.names[call.path] = None
    elif call.kind == "create":
        disk.names[call.path] = call.inode
    elif call.kind in ("link", "rename"):
        disk.names[call.other] = call.inode
    if call.kind in ("unlink", "rmdir", "rename"):
        disk.names.pop(call.path, None)
    if call.inode:
        disk.contents.setdefault(call.inode, bytearray())
