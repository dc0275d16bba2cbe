"""What a notification tells: the facts of an end, and the lines that people read."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from slurmopt.errors import one_line
from slurmopt.notify.finding import top_finding
from slurmopt.restart import causes
from slurmopt.restart.explain import not_restarted
from slurmopt.run_folder import attempts
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import FINISHED, KILLED, REQUEUE

_NEXT = {
    "finished": "slurmopt report {run}",
    "cancelled": "slurmopt retry {run}",
    "requeued": "slurmopt history {run}",
}
_OTHER_NEXT = "slurmopt logs {run} --errors"
_LONGEST = 500
"""Characters of a line of the message; errors can be longer."""


def state_of(end: Mapping[str, Any]) -> str:
    """The run's state after this `end` event: finished, failed, killed, cancelled or requeued."""
    outcome, cause = end.get("outcome"), end.get("cause")
    if end.get("next") or ("next" not in end and outcome == REQUEUE):
        return "requeued"
    if outcome == FINISHED:
        return "finished"
    if cause == causes.CANCELLED:
        return "cancelled"
    return "killed" if outcome == KILLED else "failed"


def facts_of(run: RunFolder, attempt: attempts.Attempt) -> dict[str, Any]:
    """The facts that the hooks get. `text` is all of it in one line."""
    end = attempt.end or {}
    state = state_of(end)
    names = ("cause", "reason", "outcome", "exit_code", "rank", "node", "error", "step", "time")
    of_run = {"name": run.name, "id": run.id, "folder": str(run.path), "state": state, "job": attempt.job}
    of_attempt = {"attempt": attempt.number, "nodes": attempt.nodes, **{name: end.get(name) for name in names}}
    finding = top_finding(run) if state == "finished" else None
    facts = {"text": "", **of_run, **of_attempt, "finding": finding, "next": next_command(run, state)}
    return {**facts, "text": _line(facts)}


def next_command(run: RunFolder, state: str) -> str:
    """The command to type next. It names the run by its folder, so that it works in any directory."""
    return _NEXT.get(state, _OTHER_NEXT).format(run=shlex.quote(str(run.path)))


def title(facts: Mapping[str, Any]) -> str:
    """The run, its state and the attempt: `mine/one failed (user error), attempt 0`."""
    state, cause = facts["state"], facts["cause"]
    head = f"{facts['name']}/{facts['id']} {'will come back' if state == 'requeued' else state}"
    shown = f" ({cause})" if cause and cause != state else ""
    return one_line(f"{head}{shown}, attempt {facts['attempt']}")


def lines(facts: Mapping[str, Any], longest: int = _LONGEST) -> list[str]:
    """What follows the title: the error first and where it was, else the finding; the reason; the next command. The
    command is never cut."""
    is_well = facts["state"] == "finished"
    error = f"{facts['error']}{_where(facts)}" if facts["error"] else None
    parts = [facts["finding"]] if is_well else [error, _reason(facts)]
    return [*(_cut(one_line(str(part)), longest) for part in parts if part), f"next: {one_line(facts['next'])}"]


def _reason(facts: Mapping[str, Any]) -> str | None:
    """Why the run goes on or not."""
    is_over = facts["state"] in ("failed", "killed")
    return not_restarted(facts["cause"], facts["reason"]) if is_over else facts["reason"]


def _line(facts: Mapping[str, Any]) -> str:
    """`mine/1 failed (user error), attempt 0: ValueError: nan (rank 3 on node2). Not restarted: …; next: …`."""
    *told, following = lines(facts)
    is_over = facts["state"] in ("failed", "killed")
    said = (". " if is_over else ": ").join(told)
    return f"{': '.join(filter(None, (title(facts), said)))}; {following}"


def _where(facts: Mapping[str, Any]) -> str:
    """The rank that failed first, and its node: ` (rank 3 on node2)`."""
    rank, node = facts["rank"], facts["node"]
    if rank is None:
        return ""
    return f" (rank {rank} on {node})" if node else f" (rank {rank})"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
