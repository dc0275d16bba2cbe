"""What follows an attempt's end: the cause, the decision, the nodes to leave out, and the journal's `end` event."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmopt.errors import JobError
from slurmopt.restart import causes, decision, exclusions
from slurmopt.restart.decision import Decision
from slurmopt.restart.policy import Policy
from slurmopt.run_folder import events, time_spent
from slurmopt.run_folder.access.files import read_text
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.attempt_files import newest_mark
from slurmopt.run_folder.attempts import Attempt
from slurmopt.run_folder.heartbeat import Heartbeat, last_step
from slurmopt.run_folder.json_values import as_int
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import EXIT_STATUS, INFRASTRUCTURE

CANCEL = "cancel"
"""Answer to the batch shell: the run has ended, although Slurm would requeue the job."""
FINAL = "final"


@dataclass
class Conclusion:
    """How an attempt ended and what follows."""

    cause: str
    decision: Decision
    step: int | None
    durable: int | None
    mark: float | None
    exclude: str | None
    """The nodes for Slurm to exclude from now on, "" for none; None for no change."""
    began: bool = True
    """Whether the task was started on any rank."""
    time_spent: dict[str, Any] | None = None
    """What the ranks spent: see `slurmopt.run_folder.time_spent`."""
    returns: bool = False
    """Whether Slurm requeues the job whatever is decided here."""

    def answer(self, status: int) -> str:
        """The answer for the batch shell: who brings the run back, the nodes to exclude ("-": unchanged), the exit
        status, and the seconds until the next attempt may start, if it has to wait."""
        word = self.decision.next or (CANCEL if self.returns or self.cause in causes.SLURM_RETURNS else FINAL)
        return f"{word} {'-' if self.exclude is None else self.exclude or 'none'} {status}" + (
            f" {self.decision.pause}" if self.decision.pause else ""
        )

    def as_fields(self) -> dict[str, Any]:
        """Its fields for the `end` event."""
        return {
            "cause": self.cause,
            "next": self.decision.next,
            "reason": self.decision.reason,
            "step": self.step,
            "durable": self.durable,
            "mark": self.mark,
            **({} if self.began else {"began": False}),
            **({"pause": self.decision.pause} if self.decision.pause else {}),
            **({time_spent.FIELD: self.time_spent} if self.time_spent else {}),
        }


def conclude(
    folder: RunFolder,
    attempts: list[Attempt],
    cause: str,
    node: str | None,
    beats: Mapping[int, Heartbeat],
    policy: Policy,
    by: str = decision.REQUEUE,
) -> Conclusion:
    """The conclusion on the last of `attempts`. `by` is who would bring the run back, `node` the node at fault."""
    last = attempts[-1]
    wish = wished_step(folder)
    last.durable = max((step for step in (last.durable, wish) if step is not None), default=None)
    step, mark = last_step(beats), newest_mark(policy.checkpoints, Path(policy.workdir or folder.path))
    began = has_begun(beats)
    last.end = {**(last.end or {}), "cause": cause, "step": step, "mark": mark, "began": began}
    decided = decision.decide(attempts, cause, policy.budgets, policy.no_progress, by, node)
    exclude = None
    if decided.next == decision.REQUEUE:
        exclude = _exclude(folder, last.number, node if cause in causes.OF_A_NODE else None, policy)
    durable = max((one.durable for one in attempts if one.durable is not None), default=None)
    spent = time_spent.of_heartbeats(beats.values())
    return Conclusion(cause, decided, step, durable, mark, exclude, began, spent)


def has_begun(beats: Mapping[int, Heartbeat]) -> bool:
    """Whether the task was started on any rank: its command, or its function after the rendezvous."""
    return any("running" in (beat.phases or ()) or beat.step is not None for beat in beats.values())


def wished_step(folder: RunFolder) -> int | None:
    """The step that a command has saved according to its requeue file; None if the file has no valid step."""
    import json

    path = folder.requeue_wish()
    try:
        text = read_text(path)
        if not text.strip():
            return None
        value = json.loads(text)
        as_written = value.get("step") if isinstance(value, dict) else None
        step = None if isinstance(as_written, str) else as_int(as_written)
    except OSError:
        return None
    except (ValueError, RecursionError):
        step = None
    if step is None or step < 0:
        say(f'{path}: is no JSON object with a step; taken as a wish to be requeued (valid: {{"step": 1200}})')
        return None
    return step


def clear_requeue_request(folder: RunFolder) -> None:
    """Removes the requeue file, which counts for one attempt."""
    try:
        held(folder.requeue_wish()).unlink(missing_ok=True)
    except OSError as error:
        say(f"{folder.requeue_wish()} cannot be removed: {error.strerror}")


def _exclude(folder: RunFolder, attempt: int, node: str | None, policy: Policy) -> str | None:
    """The nodes to leave out of the next attempts: `node` too, which failed this one. None leaves things as they
    are."""
    now = time.time()
    journal = events.read(folder.events, exclusions.EVENT)
    if node is not None and policy.exclude_nodes:
        fields = {"nodes": node, "until": round(now + policy.exclude_span, 3)}
        note(folder, exclusions.EVENT, attempt=attempt, **fields, reason="it failed the run")
        journal.append({"event": exclusions.EVENT, **fields})  # also where it could not be written down
    return exclusions.nodes_to_exclude(journal, now, policy.exclude_nodes, policy.excluded)


def note(folder: RunFolder, event: str, **fields: Any) -> None:
    """Appends an event. A journal that cannot be written does not keep the run from being requeued."""
    try:
        events.append(folder.events, event, **fields)
    except OSError as error:
        say(f"the journal cannot be written: {error}: {event} {fields}")


def in_one_line(main: Callable[[list[str]], int], argv: list[str]) -> int:
    """Calls `main`, and returns its exit status. Errors of the file system or of files that others have changed become
    a line in the job's log; the batch shell continues without the answer."""
    try:
        return main(argv)
    except (JobError, OSError) as error:
        say(str(error))
        return EXIT_STATUS[INFRASTRUCTURE]


def say(text: str) -> None:
    """Prints a line to the job's log, through standard error, as the batch shell reads standard output. A write that
    fails because the disk is full does not change the decision."""
    with contextlib.suppress(OSError):
        print(f"slurmopt: {text}", file=sys.stderr, flush=True)
