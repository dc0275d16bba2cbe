"""Notifies the owner of a run once for each end of an attempt, by each hook that is set. Failures change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurmopt.notify import command, desktop, email, webhook
from slurmopt.notify.facts import facts_of, state_of
from slurmopt.notify.hook_error import HookError
from slurmopt.run_folder import attempts, events
from slurmopt.run_folder.layout import RunFolder


@dataclass(frozen=True)
class Hooks:
    """When and how to notify. The command's arguments, the URLs and the token may contain `${oc.env:NAME}`."""

    when: Sequence[str]
    """The states to notify of; see `facts.state_of`."""
    command: Sequence[str] | None = None
    webhook: str | None = None
    format: str | None = None
    """The form of the webhook's body; None: by the host of its URL."""
    email: Mapping[str, Any] | None = None
    """The fields of `notify.email`."""
    desktop: bool = False

    @classmethod
    def from_json(cls, text: str) -> Hooks:
        """The hooks that `Notify.to_json_arg` wrote."""
        return cls(**json.loads(text))


def tell(run: RunFolder, attempt: int, hooks: Hooks, environ: Mapping[str, str]) -> list[str]:
    """Notifies of the attempt's end in the journal, and notes that. Returns a line for each hook that failed.

    Does nothing if the attempt has no `end` yet, its state is not in `hooks.when`, or the hook was run before.
    """
    ended = next((one for one in attempts.attempts(run) if one.number == attempt and one.end is not None), None)
    if ended is None or state_of(ended.end or {}) not in hooks.when:
        return []
    notified = _told(run, attempt)
    sends = {how: send for how, send in _sends(hooks, environ).items() if how not in notified}
    facts = facts_of(run, ended) if sends else {}
    failures = []
    for how, send in sends.items():
        failures += _send(run, attempt, how, lambda send=send: send(facts))  # type: ignore[misc]
    return failures


def _told(run: RunFolder, attempt: int) -> set[str]:
    """The hooks that were run after this attempt."""
    return {
        str(event.get("how"))
        for event in events.read(run.events, "notified", "notify-failed")
        if event.get("attempt") == attempt
    }


def _sends(hooks: Hooks, environ: Mapping[str, str]) -> dict[str, Callable[[dict[str, Any]], None]]:
    words, url, address = hooks.command, hooks.webhook, hooks.email
    sends: dict[str, Callable[[dict[str, Any]], None]] = {}
    if hooks.desktop and (program := desktop.program(environ)) is not None:
        sends["desktop"] = lambda facts: desktop.show(program, facts, environ)
    if words:
        sends["command"] = lambda facts: command.run(words, facts, environ)
    if url:
        sends["webhook"] = lambda facts: webhook.post(url, hooks.format, facts, environ)
    if address:
        sends["email"] = lambda facts: email.send(address, facts, environ)
    return sends


def _send(run: RunFolder, attempt: int, how: str, send: Callable[[], None]) -> list[str]:
    try:
        send()
    except HookError as error:
        events.append(run.events, "notify-failed", attempt=attempt, how=how, reason=str(error))
        return [f"notify.{how}: {error}"]
    events.append(run.events, "notified", attempt=attempt, how=how)
    return []
