"""Copies the sources of `storage.stage` to the disk of the node before the task, once for all its ranks.

The first rank of each node copies, and leaves a mark in the run folder: heartbeat/attempt-K/staged/node-N.json. All
ranks wait for the marks of all nodes, because none may start while another one waits; a rank that cannot stage ends,
and srun ends the others.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slurmopt.config.storage import StagedSource, variable
from slurmopt.errors import StagingError, StorageError, one_line
from slurmopt.job import failures, signals
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
from slurmopt.job.rank_args import RankArgs
from slurmopt.run_folder.access.files import make_folders, read_json, replace_json
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.layout import folder_name
from slurmopt.run_folder.outcome import EXIT_STATUS, FINISHED, INFRASTRUCTURE, USER_ERROR, Outcome
from slurmopt.run_folder.variables import Unset, fill
from slurmopt.storage.staging.source import is_s3, open_source

if TYPE_CHECKING:  # only ranks that stage need threads, hashes and what these bring along
    from slurmopt.storage.staging.node_folder import Copy
    from slurmopt.storage.staging.stage import Staged

STAGING = "staging"
"""The phase of a rank whose node is being staged."""
_FIRST_LOOK, _LONGEST_LOOK = 0.05, 2.0
_LOOKS_PER_SECOND = 500.0
"""Of all ranks together, at the marks."""
_TELLS_PER_SECOND = 50.0


class _Stopped(Exception):
    """The job is to end."""


class Staging:
    """The staging of one rank. Does nothing if the config has no `storage.stage`."""

    def __init__(self, call: RankArgs, attempt: int, facts: RankFacts, live: HeartbeatWriter) -> None:
        self._plan, self._facts, self._live = call.stage, facts, live
        self._marks = call.folder.staged(attempt)
        self._copies: list[Copy] = []
        self._group = folder_name(f"{attempt}-{call.folder.id}-{call.folder.name}")
        self._told = 0.0
        self._tell_every = max(1.0, facts.nodes / _TELLS_PER_SECOND)

    def run(self) -> Outcome | None:
        """Returns None if all copies are there, and sets their variables; else the rank's outcome."""
        if self._plan is None:
            return None
        self._live.enter(STAGING)
        try:
            if self._facts.local_rank == 0:
                self._stage_all()
            else:
                self._use(self._await_mark())
            self._await_all()
            return None
        except _Stopped:
            return failures.left("it was asked to stop while it staged")
        except StagingError as error:
            return _failed(f"{self._facts.node}: {error}", error.fault)
        except OSError as error:  # of the run folder
            return failures.outcome_of(error)
        finally:
            self._live.tell_awaited(None)

    def end(self, outcome: Outcome) -> None:
        """Ends the use of the copies. The last rank of the node removes them, unless the run may come back, or they are
        to be kept."""
        is_final = outcome.outcome in (FINISHED, USER_ERROR)
        for copy in self._copies:
            try:
                if is_final and copy.has_all(self._group, self._facts.local_world_size):
                    copy.leave_and_remove()
                else:
                    copy.leave()
            except StorageError as error:
                print(f"slurmopt: staging: a copy is not removed: {error}", file=sys.stderr, flush=True)
        self._copies = []

    def _stage_all(self) -> None:
        assert self._plan is not None
        places = {}
        for name, entry in self._plan.entries.items():
            staged = self._stage(name, entry)
            staged.copy.join(self._group)
            self._copies.append(staged.copy)
            places[name] = {"path": staged.path, "copy": staged.copy.path, "root": staged.copy.root}
            os.environ[variable(name)] = staged.path
        make_folders(self._marks)
        mark = {"node": self._facts.node, "places": places}
        replace_json(self._marks / f"node-{self._facts.node_rank}.json", mark)

    def _stage(self, name: str, entry: StagedSource) -> Staged:
        from slurmopt.storage.staging.stage import stage

        assert self._plan is not None
        key = f"storage.stage.{name}"
        place, into = (_filled(str(value), f"{key}.{part}") for part, value in _texts(entry))
        try:
            source = open_source(place, self._plan.s3 if is_s3(place) else None)
            staged = stage(source, into, entry.verify, entry.keep, self._tell)
        except StorageError as error:
            fault = error.fault if isinstance(error, StagingError) else "user"
            raise StagingError(f"{key}: {error} (from {place} to {into})", fault) from error
        _say(f"{self._facts.node}: {key}: {staged.account(place)}")
        return staged

    def _tell(self, text: str) -> None:
        """Shows the progress in the heartbeat, by which the watchdog sees that it goes on."""
        if signals.requested():
            raise _Stopped
        if (now := time.monotonic()) - self._told >= self._tell_every:
            self._told = now
            self._live.tell_awaited(text)

    def _await_mark(self) -> dict[str, Any]:
        """What the first rank of this node has staged."""
        mark = self._marks / f"node-{self._facts.node_rank}.json"
        self._live.tell_awaited("the first rank of this node stages")
        found: dict[str, Any] = self._until(lambda: read_json(mark))
        return found

    def _use(self, mark: dict[str, Any]) -> None:
        from slurmopt.storage.staging.node_folder import use

        for name, place in mark["places"].items():
            self._copies.append(copy := use(place["root"], place["copy"]))
            copy.join(self._group)
            os.environ[variable(name)] = place["path"]

    def _await_all(self) -> None:
        """Waits until each node has a mark."""
        if self._facts.nodes <= 1:
            return

        def all_there() -> bool | None:
            count = sum(name.endswith(".json") and name.startswith("node-") for name in os.listdir(held(self._marks)))
            self._live.tell_awaited(f"staging on other nodes: {count} of {self._facts.nodes} are ready")
            return True if count >= self._facts.nodes else None

        self._until(all_there)

    def _until(self, look: Callable[[], Any]) -> Any:
        """What `look` returns once that is not None. The pauses grow."""
        pause = _FIRST_LOOK
        while (found := look()) is None:
            if signals.wait(pause):
                raise _Stopped
            pause = max(min(1.5 * pause, _LONGEST_LOOK), self._facts.world_size / _LOOKS_PER_SECOND)
        return found


def _texts(entry: StagedSource) -> list[tuple[str, str | None]]:
    return [("source", entry.source), ("into", entry.into)]


def _filled(text: str, key: str) -> str:
    try:
        filled = fill(text, os.environ)
    except Unset as error:
        raise StagingError(
            f"{key}: {text!r} needs the environment variable {error}, which is not set", "user"
        ) from error
    path = os.path.expanduser(filled)
    if not is_s3(filled) and not os.path.isabs(path):
        raise StagingError(one_line(f"{key}: {filled!r} is not an absolute path"), "user")
    return filled if is_s3(filled) else os.path.normpath(path)


def _say(text: str) -> None:
    print(f"slurmopt: {one_line(text)}", file=sys.stderr, flush=True)


def _failed(error: str, fault: str) -> Outcome:
    _say(f"staging: {error}")
    if fault == "user":
        return failures.user_error(f"staging: {error}")
    # What fails on the side of the source would fail on other nodes too, so no node is left out then.
    nodes: list[str] | None = [] if fault == "source" else None
    status = EXIT_STATUS[INFRASTRUCTURE]
    return Outcome(INFRASTRUCTURE, time.time(), status, error=one_line(f"staging: {error}"), nodes=nodes)
