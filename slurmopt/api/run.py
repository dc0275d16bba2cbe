"""A run, or a point of a sweep, as a Python object."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal

from slurmopt.api import html
from slurmopt.api.hydra_state import alone
from slurmopt.api.overrides import Overrides
from slurmopt.api.plain_errors import plain_errors
from slurmopt.api.run_status import RunStatus, from_status
from slurmopt.api.wait import wait_until, wait_until_async
from slurmopt.api.watch import watch
from slurmopt.errors import RunError, RunFailed, SlurmoptError, labelled, one_line, plain_lines
from slurmopt.grid.records import readable
from slurmopt.run_folder.access.files import read_json
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.find import Selection, started_point
from slurmopt.runs.status.query import Status


class Run:
    """A run that was submitted: what it does now, what came out of it, and what to do with it.

    Each look at it reads the run's folder again. Slurm is asked at most once in 15 seconds for all runs of all
    processes of yours, so a loop over many runs is fine. The run goes on when Python ends; `slurmopt.find` comes back
    to it. `await run` is `run.result()` in asyncio.
    """

    def __init__(self, item: RunFolder | Selection) -> None:
        self._item = item

    @staticmethod
    @plain_errors
    def find(name: str | None = None, folder: str | os.PathLike[str] | None = None) -> Run:
        """The run that `name` names, as for the commands: a name (its latest run), NAME/ID, an ID, a folder, a Slurm
        job ID, SWEEP/POINT; None: the latest. `folder`: that of your runs, by default $SLURMOPT_FOLDER or `runs`.
        Raises RunError."""
        found = named(name, folder)
        if isinstance(found, Selection) and found.point is None:
            raise RunError(f"{found.label} is a sweep; slurmopt.find finds those, too")
        return Run(found)

    @property
    def folder(self) -> Path:
        """The run's folder; for a point that has not started the one that it is to have."""
        if isinstance(self._item, RunFolder):
            return self._item.path
        return self._item.sweep.point(self._item.point or 0).path

    @property
    def _home(self) -> Path:
        """The folder that is there as long as the run is known: of a point that of its sweep."""
        return self._item.path if isinstance(self._item, RunFolder) else self._item.sweep.path

    @property
    def name(self) -> str:
        return self._home.parent.name

    @property
    def id(self) -> str:
        return self._home.name

    @property
    def label(self) -> str:
        """NAME/ID, or NAME/ID/POINT: what every command takes for RUN."""
        return one_line(f"{self.name}/{self.id}") if isinstance(self._item, RunFolder) else self._item.label

    @property
    def point(self) -> int | None:
        """The number of the point in its sweep; None for a run of its own."""
        return None if isinstance(self._item, RunFolder) else self._item.point

    @property
    def job_id(self) -> str | None:
        """The latest Slurm job; `local-PID` where the run is on this machine."""
        return self.status.job

    @property
    def backend(self) -> str | None:
        """`sbatch`, `submitit` or `local`."""
        return self._query().journal.backend

    @property
    def status(self) -> RunStatus:
        """What the run does now. Raises RunError where its folder is gone."""
        return from_status(self._query())

    @property
    def done(self) -> bool:
        """Whether the run has ended, well or not."""
        return self.status.done

    @property
    def metrics(self) -> dict[str, float]:
        """The last value of each metric that the run gave to `slurmopt.progress`."""
        return self.status.metrics

    def _query(self) -> Status:
        from slurmopt.sweeps.status.overview import overview

        if not os.path.isdir(self._home):
            raise RunError(f"{self.label} is gone: there is no folder {one_line(str(self._home))}")
        shown = overview([self._item])
        (status,) = shown.statuses.values()
        if shown.problem is not None and not status.detail:
            status.detail = f"Slurm was not asked: {shown.problem}"
        return status

    def _is_over(self, status: Status) -> bool:
        """Whether the run has ended. RunError where nobody will ever tell."""
        lost_here = status.state == "unknown" and status.journal.local
        if lost_here or (status.state == "unsubmitted" and isinstance(self._item, RunFolder)):
            raise RunError(f"{self.label} is {status.state}: {one_line(status.detail or '')}")
        return from_status(status).done

    @plain_errors
    def wait(self, timeout: float | None = None) -> RunStatus:
        """Waits until the run has ended, well or not, and returns its last status. Raises TimeoutError after `timeout`
        seconds; the run goes on then, as it does after Ctrl-C."""
        return from_status(wait_until(self._query, self._is_over, timeout, self.label))

    async def wait_async(self, timeout: float | None = None) -> RunStatus:
        """`wait` for asyncio: other tasks go on meanwhile."""
        return from_status(await wait_until_async(self._query, self._is_over, timeout, self.label))

    @plain_errors
    def result(self, timeout: float | None = None) -> Any:
        """Waits for the end, and returns what the function returned, as far as JSON can hold it; else, and of a
        command, None.

        Raises RunFailed where the run ended without success, with the traceback of the rank that failed first;
        TimeoutError after `timeout` seconds."""
        return self._outcome(wait_until(self._query, self._is_over, timeout, self.label))

    def __await__(self) -> Generator[Any, None, Any]:
        return self._result_async().__await__()

    async def _result_async(self) -> Any:
        return self._outcome(await wait_until_async(self._query, self._is_over, None, self.label))

    def _outcome(self, status: Status) -> Any:
        end = status.journal.ended or {}
        if status.state == "finished":
            return end["result"] if "result" in end else (read_json(readable(status.folder).result) or {}).get("result")
        raise RunFailed(f"{self.label} {_ended(status)}", status.state, self._traceback(status))

    def _traceback(self, status: Status) -> str | None:
        from slurmopt.runs.status.failure import failure

        attempt, run = status.journal.attempt, readable(status.folder)
        failed = failure(run, attempt.number) if attempt is not None else None
        text = failed.traceback if failed is not None else None
        if text is None and isinstance(self._item, Selection):
            text = _traceback_of_point(run, self._item)
        return plain_lines(text) if text else None

    @plain_errors
    def logs(self, rank: int | Literal["all"] = 0, *, attempt: int | None = None, errors: bool = False) -> str:
        """The log of a rank, or of all ranks with the rank before each line, in the latest or another attempt.
        `errors`: the traceback of the rank that failed first, and the end of its log. Raises RunError where there is no
        log yet."""
        from slurmopt.runs.logs import ranks

        run = self._item if isinstance(self._item, RunFolder) else started_point(self._item)
        if errors:
            return ranks.errors(run, attempt)
        return "".join(ranks.read(run, None if rank == "all" else rank, attempt))

    def series(self, *, attempt: int | None = None, node: str | None = None) -> list[dict[str, Any]]:
        """What was measured on the nodes, such as GPU power and memory: a dict for each node and interval, with `node`,
        `time` (seconds since the epoch, its end), `seconds` (its length), and the columns of `slurmopt metrics`; None
        is not measured. Raises RunError where nothing was measured."""
        from slurmopt.runs.metrics.query import load, of_point

        run = self._item if isinstance(self._item, RunFolder) else of_point(self._item)
        rows: list[dict[str, Any]] = []
        for one in load(run, attempt, node).nodes(detail=True):
            for place, (time, seconds) in enumerate(zip(one.times, one.seconds, strict=True)):
                values = {column: measured[place] for column, measured in one.values.items()}
                rows.append({"node": one.node, "time": time, "seconds": seconds, **values})
        return rows

    @plain_errors
    def cancel(self) -> bool:
        """Stops the run, and waits up to ten seconds for its end. False where it had ended before. Raises RunError for
        another user's run, SlurmError where Slurm does not answer."""
        if self.status.done:
            return False
        if isinstance(self._item, Selection):
            from slurmopt.sweeps.cancel import cancel as cancel_points

            cancel_points(self._item)
            return True
        from slurmopt.report.in_own_process import write_missing_report
        from slurmopt.runs.cancel import cancel

        write_missing_report(cancel(self._item))
        return True

    @plain_errors
    def retry(
        self,
        *overrides: str,
        more_memory: float | None = None,
        more_time: float | None = None,
        again: bool = False,
        **keys: Any,
    ) -> Run:
        """Submits the run again in its folder, from its last checkpoint, and returns it. `overrides` and `keys` change
        its config as in `submit`; `more_memory=1.5` and `more_time=2` multiply what it had. Raises RunError where it
        goes on, or has finished; with `again` a finished one goes on all the same."""
        from slurmopt.launching.retry import retry_points, retry_run
        from slurmopt.runs.recovery.changed_config import More

        words = [*overrides, *Overrides([], adds=False).of_items(keys.items())]
        more = More(more_memory, more_time)
        with alone():
            if isinstance(self._item, Selection):
                retry_points(self._item, words, more)
            else:
                retry_run(self._item, words, more, again)
        return self

    def watch(self) -> None:
        """Shows the run until it has ended: in a notebook in place, elsewhere a line for each change. Ctrl-C ends the
        watching, not the run."""
        watch(self, lambda: self.done)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other._item == self._item

    def __hash__(self) -> int:
        return hash(self.folder)

    def __repr__(self) -> str:
        """One line: the run and its state."""
        try:
            status = self._query()
        except (SlurmoptError, OSError) as error:
            return f"<Run {labelled(self.label, one_line(str(error)))}>"
        return f"<Run {self.label}: {html.run_line(status)}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        try:
            return html.run_page(self._query(), self.label)
        except (SlurmoptError, OSError) as error:
            return html.line(labelled(self.label, str(error)))


def _traceback_of_point(run: RunFolder, selection: Selection) -> str | None:
    """The last traceback in the log of a point, whose journal may have none where it shared an array task."""
    from slurmopt.commands.logs import traceback_of
    from slurmopt.sweeps.status.query import sweep_states

    lines = traceback_of(run, sweep_states(selection.sweep).of(selection.point or 0))
    return "\n".join(lines) if any(line.startswith("Traceback") for line in lines) else None


def named(name: str | None, folder: str | os.PathLike[str] | None) -> RunFolder | Selection:
    """What `name` names in `folder`, which is by default that of the commands."""
    from slurmopt.runs.find import select
    from slurmopt.runs.options import default_folder

    return select(name, Path(folder) if folder is not None else default_folder())


def _ended(status: Status) -> str:
    """How a run ended without success, in one line."""
    detail = status.detail or (status.journal.ended or {}).get("error") or ""
    word = {"failed": "failed", "lost": "is lost", "killed": "was killed", "cancelled": "was cancelled"}[status.state]
    return one_line(f"{word}: {detail}" if detail else word)
