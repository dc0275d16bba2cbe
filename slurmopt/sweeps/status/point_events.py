"""What a line of a journal tells of a point that started or ended.

A line of few is read by `json`; of very many by msgspec, which decodes only the fields that are needed, in a sixth of
the time, but takes 25 ms to import. What msgspec does not take (NaN, a number as text, a foreign hand's line) is read
by `json` too, so that both give the same.
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
"""Lines up to which json takes less time than the import of msgspec."""


def of_event(event: dict[str, Any]) -> PointEvent:
    """Nothing of `event` is trusted to have the right type."""
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


def returns(told: PointEvent) -> bool:
    """As `slurmopt.runs.journal.returns`."""
    if told.next is None:
        return False
    return told.outcome == REQUEUE if told.next == ABSENT else journals.returns({"next": told.next})


class Reader:
    """Reads the lines of one file after the other."""

    def __init__(self, metrics: bool) -> None:
        """`metrics`: whether `metrics` and `result` are asked for."""
        self._metrics = metrics
        self._read = 0
        self._quick: Callable[[bytes], PointEvent] | None = None

    def expect_many(self) -> None:
        """Of lines: none is read by json first."""
        self._quick = self._decoder()

    def read(self, lines: Sequence[bytes]) -> list[PointEvent]:
        """The events among the lines."""
        if self._quick is None:
            self._read += len(lines)
            if self._read <= _FEW:
                return _by_json(lines)
            self._quick = self._decoder()
        try:
            return list(map(self._quick, lines))
        except (ValueError, RecursionError):  # msgspec's own errors are ValueErrors
            return [told for line in lines for told in self._with_care(self._quick, line)]

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
