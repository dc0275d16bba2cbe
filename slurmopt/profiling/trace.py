"""Reads a trace in Chrome's format, as Kineto (torch.profiler) writes it.

A trace of some steps has hundreds of thousands of events and is decoded event by event: only those that an analysis
needs stay in memory.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import TextIOBase
from typing import Any, NamedTuple

from slurmopt.errors import InputError

MOST_EVENTS = 5_000_000
"""Events of one file that are kept, at about 200 bytes each."""
_MOST_READ = 2 * MOST_EVENTS
"""Events of one file, those that are not needed included."""
_MOST_TEXT = 1 << 32
"""Characters of one file, without its compression."""
_MOST_NUMBER = 1e17
"""Microseconds: three thousand years."""
_MOST_ARGUMENT, _MOST_ITEMS = 256, 16
"""Characters of a text among the arguments of an event, and items of a list."""
_BETWEEN = re.compile(r"[\s,]*")
_PIECE = 1 << 20
_LONGEST = 1 << 25
"""Characters of one event, and of all that comes before the events."""
DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
HOST = frozenset({"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"})
_ARGS = ("correlation", "Collective name", "Process Group Name", "Seq", "stream", "device")
MATRIX_OPERATORS = {
    "aten::mm": (0, 1), "aten::addmm": (1, 2), "aten::bmm": (0, 1), "aten::baddbmm": (1, 2),
}  # fmt: skip
"""Operator → which of its inputs are the two matrices."""
_LISTS = ("Input Dims", "Input type")
_SHAPES = (*_LISTS, "External id")


class Event(NamedTuple):
    """A row of a trace. Times are microseconds since the trace's own zero."""

    name: str
    category: str
    start: float
    end: float
    lane: str
    """The thread of the host, or the stream of the device."""
    args: dict[str, Any]

    @property
    def duration(self) -> float:
        return self.end - self.start


@dataclass
class Trace:
    """One rank's trace."""

    rank: int | None
    world_size: int | None
    device: str | None
    """The GPU's name."""
    base: float
    """Seconds since the epoch at the trace's zero; 0 where the file does not tell."""
    events: list[Event] = field(default_factory=list)
    """By start; of equal starts the longer first."""

    @property
    def has_device(self) -> bool:
        return any(event.category in DEVICE for event in self.events)


def read(stream: TextIOBase, name: str) -> Trace:
    """Reads a trace; `name` is for messages. Raises InputError if it is none, or is not complete."""
    pieces = _Pieces(stream, name)
    head = pieces.head()
    found = _trace_of(head)
    for count, value in enumerate(pieces.objects()):
        if count >= _MOST_READ:
            raise InputError(f"{name}: more than {_MOST_READ:,} rows; trace fewer steps")
        event = _event_of(value)
        if event is not None:
            found.events.append(event)
            if len(found.events) > MOST_EVENTS:
                raise InputError(f"{name}: more than {MOST_EVENTS:,} events; trace fewer steps")
    if not found.events:
        raise InputError(f"{name}: no events of an operator or kernel; the process did nothing in that time")
    found.events.sort(key=lambda event: (event.start, -event.end))
    return found


class _Pieces:
    """The text of a file, of which no more is held than one event needs."""

    def __init__(self, stream: TextIOBase, name: str) -> None:
        self._stream, self._name, self._text, self._place = stream, name, "", 0
        self._read = 0

    def head(self) -> dict[str, Any]:
        """What the file says before its events. An array instead of an object has the events alone."""
        while not self._text.lstrip():
            self._text = ""
            if not self._more():
                break
        if self._text.lstrip().startswith("["):
            self._place = self._text.index("[") + 1
            return {}
        while (at := self._text.find('"traceEvents"')) < 0 or (bracket := self._text.find("[", at)) < 0:
            if len(self._text) > _LONGEST or not self._more():
                raise InputError(f'{self._name}: not a trace of the profiler: no "traceEvents"')
        self._place = bracket + 1
        try:
            head = json.loads(self._text[:at] + '"traceEvents": []}')
        except (ValueError, RecursionError):
            raise InputError(f"{self._name}: not a trace of the profiler: it is not valid JSON") from None
        return head if isinstance(head, dict) else {}

    def objects(self) -> Iterator[Any]:
        """The events."""
        decode = json.JSONDecoder().raw_decode
        while self._starts_another():
            try:
                value, self._place = decode(self._text, self._place)
            except ValueError:
                self._need_more()
            except RecursionError:
                raise InputError(f"{self._name}: not a trace of the profiler: an event is nested too deep") from None
            else:
                yield value

    def _starts_another(self) -> bool:
        while True:
            between = _BETWEEN.match(self._text, self._place)
            self._place = between.end() if between is not None else self._place
            if self._place < len(self._text):
                return self._text[self._place] != "]"
            self._need_more()

    def _need_more(self) -> None:
        if len(self._text) - self._place > _LONGEST:
            raise InputError(f"{self._name}: not a trace of the profiler: an event is not valid JSON")
        if not self._more():
            raise InputError(f"{self._name}: the trace is not complete: it ends within its events")

    def _more(self) -> bool:
        piece = self._stream.read(_PIECE)
        self._read += len(piece)
        if self._read > _MOST_TEXT:
            raise InputError(f"{self._name}: more than {_MOST_TEXT:,} characters; trace fewer steps")
        self._text = self._text[self._place :] + piece
        self._place = 0
        return bool(piece)


def _trace_of(head: dict[str, Any]) -> Trace:
    ranks = head.get("distributedInfo")
    ranks = ranks if isinstance(ranks, dict) else {}
    devices = head.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices and isinstance(devices[0], dict) else {}
    base = _number(head.get("baseTimeNanoseconds"))
    return Trace(
        rank=_whole(ranks.get("rank")),
        world_size=_whole(ranks.get("world_size")),
        device=str(first["name"]) if "name" in first else None,
        base=0.0 if base is None else base / 1e9,
    )


def _event_of(value: Any) -> Event | None:
    if not isinstance(value, dict) or value.get("ph") != "X":
        return None
    category, name = value.get("cat"), value.get("name")
    start, duration = _number(value.get("ts")), _number(value.get("dur"))
    if not isinstance(category, str) or not isinstance(name, str) or start is None or duration is None:
        return None
    if category not in DEVICE and category not in HOST:
        return None
    args = value.get("args")
    # Shapes take memory: only those of matrix products are kept, and of kernels the operator that launched them.
    names = (*_ARGS, *_SHAPES) if name in MATRIX_OPERATORS or category == "kernel" else _ARGS
    kept = {}
    if isinstance(args, dict):
        kept = {key: args[key] for key in names if _is_small(args.get(key), 2 if key in _LISTS else 0)}
    lane = f"{value.get('pid')}/{value.get('tid')}"
    return Event(sys.intern(name), sys.intern(category), start, start + max(0.0, duration), sys.intern(lane), kept)


def _is_small(value: Any, depth: int) -> bool:
    """Whether it is a number, a short text, or a short list of such things: anybody may have written the file."""
    if isinstance(value, list):
        return depth > 0 and len(value) <= _MOST_ITEMS and all(_is_small(item, depth - 1) for item in value)
    return isinstance(value, int | float) or (isinstance(value, str) and len(value) <= _MOST_ARGUMENT)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)  # older releases write times as text
    except (ValueError, OverflowError):
        return None
    return number if abs(number) <= _MOST_NUMBER else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else None
