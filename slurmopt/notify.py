"""Notifies the owner of a run, by a command or a webhook, once for each end of an attempt. Failures change nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurmopt.errors import one_line
from slurmopt.restart import causes
from slurmopt.restart.explain import not_restarted
from slurmopt.run_folder import attempts, events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import FINISHED, KILLED, REQUEUE
from slurmopt.run_folder.variables import Unset, fill

COMMAND_SECONDS = 60
WEBHOOK_SECONDS = 10
_WEB = ("http://", "https://")


class HookError(Exception):
    """Why a hook failed, without the URL or any value from the environment."""


@dataclass(frozen=True)
class Hooks:
    """When and how to notify. The command's arguments and the URL may contain `${oc.env:NAME}`."""

    when: Sequence[str]
    """The states to notify of; see `state_of`."""
    command: Sequence[str] | None = None
    webhook: str | None = None


def tell(run: RunFolder, attempt: int, hooks: Hooks, environ: Mapping[str, str]) -> list[str]:
    """Notifies of the attempt's end in the journal, and notes that. Returns a line for each hook that failed.

    Does nothing if the attempt has no `end` yet, its state is not in `hooks.when`, or the hook was run before.
    """
    ended = next((one for one in attempts.attempts(run) if one.number == attempt and one.end is not None), None)
    if ended is None or state_of(ended.end or {}) not in hooks.when:
        return []
    facts, notified = facts_of(run, ended), _told(run, attempt)
    failures = []
    for how, send in _sends(hooks, facts, environ).items():
        if how not in notified:
            failures += _send(run, attempt, how, send)
    return failures


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
    return {"text": _line(run, attempt.number, state, end), **of_run, **of_attempt}


def _line(run: RunFolder, attempt: int, state: str, end: Mapping[str, Any]) -> str:
    """`mine/1 failed: ValueError: nan (user error, attempt 0, rank 3 on node2). Not restarted: …`."""
    head = f"{run.name}/{run.id} {'will come back' if state == 'requeued' else state}"
    cause, error, reason = (str(end[name]) if end.get(name) else "" for name in ("cause", "error", "reason"))
    rank = f"rank {end['rank']}" if end.get("rank") is not None else ""
    place = " ".join(filter(None, (rank, f"on {end['node']}" if end.get("node") else "")))
    if state == "finished":
        return one_line(f"{head}, attempt {attempt}")
    if state == "requeued":
        return one_line(": ".join(filter(None, (f"{head} ({cause}), attempt {attempt}", error, reason))))
    facts = ", ".join(filter(None, (cause if cause != state else "", f"attempt {attempt}", place)))
    follows = not_restarted(cause, reason)
    told = f"{head}: {error} ({facts})" if error else f"{head} ({facts})"
    return one_line(f"{told}. {follows}" if follows else told)


def _told(run: RunFolder, attempt: int) -> set[str]:
    """The hooks that were run after this attempt."""
    return {
        str(event.get("how"))
        for event in events.read(run.events, "notified", "notify-failed")
        if event.get("attempt") == attempt
    }


def _sends(hooks: Hooks, facts: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Callable[[], None]]:
    command, webhook = hooks.command, hooks.webhook
    sends: dict[str, Callable[[], None]] = {}
    if command:
        sends["command"] = lambda: _run(command, facts, environ)
    if webhook:
        sends["webhook"] = lambda: _post(webhook, facts, environ)
    return sends


def _send(run: RunFolder, attempt: int, how: str, send: Callable[[], None]) -> list[str]:
    try:
        send()
    except HookError as error:
        events.append(run.events, "notify-failed", attempt=attempt, how=how, reason=str(error))
        return [f"notify.{how}: {error}"]
    events.append(run.events, "notified", attempt=attempt, how=how)
    return []


def _run(words: Sequence[str], facts: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Runs the command; what it prints goes to standard error, which is the job's log in a job."""
    argv = [_filled(str(word), environ) for word in words]
    # Not SLURMOPT_FOLDER, which names the folder of all runs to the commands.
    names = {"folder": "SLURMOPT_RUN_FOLDER"}
    variables = {names.get(key, f"SLURMOPT_{key.upper()}"): _plain(value) for key, value in facts.items()}
    try:
        subprocess.run(
            argv,
            input=json.dumps(facts).encode(),
            stdout=2,
            env={**environ, **variables},
            cwd=facts["folder"],
            timeout=COMMAND_SECONDS,
            check=True,
        )
    except OSError as error:
        raise HookError(f"{one_line(str(words[0]))!r} cannot be started: {(error.strerror or '').lower()}") from error
    except subprocess.TimeoutExpired as error:
        raise HookError(f"{one_line(str(words[0]))!r} was still running after {COMMAND_SECONDS} s") from error
    except subprocess.CalledProcessError as error:
        ended = f"signal {-error.returncode}" if error.returncode < 0 else f"exit status {error.returncode}"
        raise HookError(f"{one_line(str(words[0]))!r} ended with {ended}") from error


def _plain(value: Any) -> str:
    return "" if value is None else one_line(str(value))


def _post(url: str, facts: dict[str, Any], environ: Mapping[str, str]) -> None:
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    address = _filled(url, environ).strip()
    if not address.startswith(_WEB):
        raise HookError("is not a URL; valid: https://…")
    headers = {"Content-Type": "application/json", "User-Agent": "slurmopt"}
    request = Request(address, json.dumps(facts).encode(), headers)  # noqa: S310  its scheme was checked
    try:
        with urlopen(request, timeout=WEBHOOK_SECONDS):  # noqa: S310
            pass
    except HTTPError as error:
        error.close()
        raise HookError(f"the server answered {error.code}") from error
    except TimeoutError as error:
        raise HookError(f"no answer within {WEBHOOK_SECONDS} s") from error
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        why = reason.strerror if isinstance(reason, OSError) else None
        raise HookError(f"cannot be reached: {one_line((why or type(reason).__name__).lower())}") from error
    except (HTTPException, ValueError) as error:  # their words have the URL in them
        raise HookError("is not a URL, or what answers there is no web server") from error


def _filled(text: str, environ: Mapping[str, str]) -> str:
    try:
        return fill(text, environ)
    except Unset as error:
        raise HookError(f"needs the environment variable {error}, which is not set here") from error
