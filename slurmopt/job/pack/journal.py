"""Writes and reads the array task's own journal: one line for each start and end of a point."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from slurmopt.job.point_end import OVERTAKEN, End
from slurmopt.restart import causes
from slurmopt.run_folder import attempts as story
from slurmopt.run_folder import events
from slurmopt.run_folder.json_values import as_int
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import FINISHED, INFRASTRUCTURE

STARTED, ENDED = "started", "ended"
_FIELDS = {field.name for field in fields(End)}


class TaskJournal:
    """The `point` events of tasks/S-T/events.jsonl, over all attempts of the array task."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._outcomes: dict[int, str] = {}
        for event in events.read(folder.events):
            if event["event"] == "point" and event.get("state") == ENDED and event.get("next") is None:
                point = as_int(event.get("point"))
                if point is not None:
                    self._take(point, str(event.get("outcome")), event.get("cause"))

    def has_ended(self, point: int) -> bool:
        """Whether the point needs nothing more from this array task."""
        return point in self._outcomes

    @property
    def ended(self) -> int:
        """The number of points that need nothing more from it."""
        return len(self._outcomes)

    @property
    def failed(self) -> list[int]:
        """The points that ended for good and have not finished."""
        return sorted(point for point, outcome in self._outcomes.items() if outcome != FINISHED)

    def start(self, point: int, attempt: int) -> None:
        """Notes that an attempt of a point begins. Raises OSError."""
        events.append(self._folder.events, "point", point=point, state=STARTED, attempt=attempt)

    def lost(self, point: int) -> None:
        """Counts a point whose end could not be written anywhere as not finished."""
        self._outcomes[point] = INFRASTRUCTURE

    def end(self, end: End) -> None:
        """Notes how an attempt of a point ended. Raises OSError."""
        fields = {name: value for name, value in asdict(end).items() if name != "point"}
        events.append(self._folder.events, "point", point=end.point, state=ENDED, **fields)
        if end.next is None:
            self._take(end.point, end.outcome, end.cause)

    def _take(self, point: int, outcome: str, cause: Any) -> None:
        """Counts an end; a point that another array task continues has not failed."""
        self._outcomes[point] = FINISHED if cause == OVERTAKEN else outcome


def end_in_own_journal(point: int, journal: list[dict[str, Any]]) -> End | None:
    """How the point ended by its own `journal`; None if it needs another attempt.

    A point that has ended for good needs none, in whichever array task it ended, unless the user has asked for a retry
    since.
    """
    attempts = story.of_events(journal)
    last = attempts[-1] if attempts else None
    if last is None or last.end is None or last.end.get("next") is not None or not last.since_retry:
        return None
    return end_of_event(point, last.number, last.end)


def end_of_event(point: int, attempt: int, event: dict[str, Any]) -> End:
    """The End from an `end` event in a point's own journal."""
    known = {name: value for name, value in event.items() if name in _FIELDS - {"point", "attempt"}}
    known = {"outcome": "", "cause": causes.UNKNOWN, "next": None} | known
    return End(point=point, attempt=attempt, **known)
