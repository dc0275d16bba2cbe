"""Waits until runs, sweeps and points have ended."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

from slurmopt.errors import one_line
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.find import Selection
from slurmopt.runs.logs.follow import Note
from slurmopt.runs.replaced_folders import refuse_swapped
from slurmopt.runs.status.account import headline
from slurmopt.runs.status.state import ALIVE
from slurmopt.runs.status.view import steps
from slurmopt.sweeps.status.overview import Overview, overview
from slurmopt.sweeps.status.view import state_counts

_QUIET = 2.0
"""Seconds before a terminal shows what is waited for."""
_SHORTEST, _LONGEST = 0.5, 5.0
"""Seconds between two looks at the journals. Slurm is asked through the answer that all commands share."""
_SLOWER = 1.2


@dataclass(frozen=True)
class ItemState:
    """The state of a run, sweep or selection of points."""

    text: str
    over: bool
    finished: bool


class Waiting:
    """The items that are waited for."""

    def __init__(self, items: list[RunFolder | Selection]) -> None:
        self._items = items
        self._shown = Overview([], {}, {}, None, details=False)
        self.states: dict[str, ItemState] = {}
        """Label → state, by the latest look."""
        self._seen_alive: set[str] = set()

    @property
    def ended(self) -> dict[str, ItemState]:
        """Those that have ended."""
        return {label: state for label, state in self.states.items() if state.over}

    def wait(self, limit: float | None, any_of_them: bool) -> bool:
        """Returns True once all, or any of them, have ended; False after `limit` seconds. RunError where the folder of
        a single item was replaced."""
        begin, pause, note = time.monotonic(), _SHORTEST, Note()
        try:
            while True:
                self.look()
                if self._is_done(any_of_them):
                    return True
                passed = time.monotonic() - begin
                if limit is not None and passed >= limit:
                    return False
                if passed > _QUIET and sys.stderr.isatty():
                    note.show(self._progress())
                time.sleep(pause if limit is None else min(pause, limit - passed))
                pause = min(_LONGEST, pause * _SLOWER)
        finally:
            note.clear()

    def look(self) -> None:
        """Queries all items. One that can no longer be read has ended, but not finished."""
        self._shown = overview(self._items, details=False)
        if len(self._items) == 1 and self._shown.jobs:
            refuse_swapped(*self._shown.jobs[0])
        self.states = {label_of(item): self._state(item) for item in self._items}
        self._seen_alive |= {label for label, state in self.states.items() if not state.over}

    def awaited_runs(self) -> list[RunFolder]:
        """The runs that have ended since they were seen alive."""
        runs = [item for item in self._items if isinstance(item, RunFolder)]
        return [run for run in runs if label_of(run) in self._seen_alive and self.states[label_of(run)].over]

    def as_list(self, labels: dict[str, ItemState]) -> list[dict[str, Any]]:
        """What `--json` prints of those items."""
        return [
            one for item, one in zip(self._shown.items, self._shown.as_list(), strict=True) if label_of(item) in labels
        ]

    def _is_done(self, any_of_them: bool) -> bool:
        over = [state.over for state in self.states.values()]
        return any(over) if any_of_them else all(over)

    def _state(self, item: RunFolder | Selection) -> ItemState:
        if item not in self._shown.items:
            return ItemState("cannot be read", over=True, finished=False)
        status = self._shown.status_of(item)
        if status is not None:
            over = not (status.alive or status.state == "unknown")
            progress = steps(status.progress) if not over else ""
            text = ": ".join(filter(None, (status.state, progress or headline(status))))
            return ItemState(one_line(text), over, status.state == "finished")
        assert isinstance(item, Selection)
        counts = self._shown.sweep_states[str(item.sweep.path)].counts(item.points)
        over = not any(state in (*ALIVE, "unknown") for state in counts)
        return ItemState(state_counts(counts), over, set(counts) == {"finished"})

    def _progress(self) -> str:
        left = [f"{label} ({state.text})" for label, state in self.states.items() if not state.over]
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        return f"waiting for {left[0]}{more}; {len(self.ended)} of {len(self.states)} ended"


def label_of(item: RunFolder | Selection) -> str:
    """NAME/ID, or NAME/ID/3-9."""
    return one_line(f"{item.name}/{item.id}") if isinstance(item, RunFolder) else item.label
