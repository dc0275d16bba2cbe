"""Reads what a rank feeds to the metric sinks: lines of JSON from a pipe."""

from __future__ import annotations

import json
import os

from slurmopt.job.sinks.record import Record
from slurmopt.run_folder.json_values import as_int, number, text

_AT_ONCE = 1 << 20
_LONGEST = 16 << 20


class Incoming:
    """The reading end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""
        os.set_blocking(descriptor, False)
        self.is_over = False
        """Whether nothing more comes."""
        self.dropped = 0
        """Steps that the rank had to drop."""
        self.outcome: str | None = None
        """How the rank ended, once it has said so."""
        self.seconds: float | None = None
        """How long it waits for the sinks from then on."""

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._descriptor

    def read(self) -> list[Record]:
        """The steps that have come."""
        try:
            data = os.read(self._descriptor, _AT_ONCE)
        except BlockingIOError:
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_LONGEST:]
        records = [record for line in lines if (record := self._record(line)) is not None]
        self.is_over = not data or self.outcome is not None  # another process may still hold the other end
        return records

    def _record(self, line: bytes) -> Record | None:
        value = json.loads(line)
        if isinstance(value, dict):
            self.dropped += as_int(value.get("dropped")) or 0
            self.outcome = text(value.get("outcome")) or self.outcome
            self.seconds = number(value.get("seconds")) or self.seconds
            return None
        at, step, numbers = value
        values = {_encodable(name): float(each) for name, each in numbers.items()}
        return Record(number(at) or 0.0, as_int(step), values)


def _encodable(name: str) -> str:
    """The name of a metric as UTF-8 has it. One that a training made of the name of a file may have half characters,
    with which no sink could write anything."""
    return name.encode("utf-8", "backslashreplace").decode()
