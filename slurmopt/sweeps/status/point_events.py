"""Parses the journal lines of points that started or ended.

`json` parses few lines; msgspec parses many, because it decodes only the fields that are needed, in a sixth of the
time, but takes 25 ms to import. Lines that msgspec refuses (NaN, a number as text, an edited line) are parsed by `json`
too, so that both give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from slurmopt.run_folder import events
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.outcome import REQUEUE
from slurmopt.runs import journal as journals
from slurmopt.sweeps.status.point_event import ABSENT, PointEvent

_FEW = 5000
"""Lines up to which json takes less time than importing msgspec."""


def of_event(event: dict[str, Any]) -> PointEvent:
    """The event as PointEvent; a field of a wrong type counts as missing."""
    return PointEvent(
        event=str(event["event"]),
        time=number(event.get("time")),
        job=_text(event.get("job")),
        point=as_int(event.get("point")),
        state=_text(event.get("state")),
        attempt=as_int(event.get("attempt")),
        outcome=_text(event.get("outcome")),
        cause=_text(event.get("cause")),
        next=_text(event["next"]) if "next" in event else ABSENT,
        error=_text(event.get("error")),
        reason=_text(event.get("reason")),
        rank=as_int(event.get("rank")),
        seconds=number(event.get("seconds")),
        pruned=bool(event.get("pruned")),
        by=_text(event["by"]) if "by" in event else ABSENT,
        metrics=event.get("metrics"),
        result=event.get("result"),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else text(value)


def returns(event: PointEvent) -> bool:
    """Whether the run restarts after this `end` event; as `slurmopt.runs.journal.returns`."""
    if event.next is None:
        return False
    return event.outcome == REQUEUE if event.next == ABSENT else journals.returns({"next": event.next})


class Reader:
    """Parses the lines of one file after the other."""

    def __init__(self, metrics: bool) -> None:
        """`metrics`: whether `metrics` and `result` are needed."""
        self._metrics = metrics
        self._read = 0
        self._quick: Callable[[bytes], PointEvent] | None = None

    def expect_many(self) -> None:
        """Announces many lines, so that msgspec is used from the first line on."""
        self._quick = self._decoder()

    def read(self, lines: Sequence[bytes]) -> list[PointEvent]:
        """The events in the lines."""
        if self._quick is None:
            self._read += len(lines)
            if self._read <= _FEW:
                return _by_json(lines)
            self._quick = self._decoder()
        try:
            return list(map(self._quick, lines))
        except (ValueError, RecursionError):  # msgspec's own errors are ValueErrors
            return [event for line in lines for event in self._with_care(self._quick, line)]

    def _decoder(self) -> Callable[[bytes], PointEvent]:
        from slurmopt.sweeps.status.point_events_msgspec import decoder

        return decoder(self._metrics)

    @staticmethod
    def _with_care(quick: Callable[[bytes], PointEvent], line: bytes) -> list[PointEvent]:
        try:
            return [quick(line)]
        except (ValueError, RecursionError):
            return _by_json([line])


def _by_json(lines: Sequence[bytes]) -> list[PointEvent]:
    return [of_event(event) for event in events.parse(lines)]
