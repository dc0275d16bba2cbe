"""The group `notify`: notifications at the end of a run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from slurmopt.config.check import one_of, text_or_null
from slurmopt.errors import ConfigError

FINAL = ("finished", "failed", "killed", "cancelled")
STATES = (*FINAL, "requeued")
_WEB = ("http://", "https://", "${oc.env:")


@dataclass(kw_only=True)
class Notify:
    """Notifications at the end of a run. For Slurm's mail, see `resources.mail_user` and `resources.mail_type`."""

    when: list[str] = field(default_factory=lambda: list(FINAL))
    """The ends that are notified: `finished`, `failed`, `killed`, `cancelled`; `requeued`: each end after which the run
    is restarted."""

    command: Any = None
    """A program and its arguments: a list, or a string that is split as by a shell. It is not run by a shell. It
    receives the facts as `SLURMOPT_…` variables and as a JSON object on standard input."""

    webhook: str | None = None
    """A URL that receives the same JSON object by POST; Slack and similar services show its `text`. Such a URL is a
    secret: write `${oc.env:NAME}`, which is resolved when it is used."""

    def __post_init__(self) -> None:
        for state in self.when:
            one_of(state, STATES, "notify.when")
        text_or_null(self.webhook, "notify.webhook")
        if self.webhook is not None and not self.webhook.startswith(_WEB):
            raise ConfigError("is not a URL; valid: https://…, or ${oc.env:NAME}", "notify.webhook")
        if self.command is not None:
            _check_words(self.command)

    def to_json_arg(self) -> str | None:
        """Returns the JSON argument of `python -m slurmopt.job.supervisor.notify`; None if there is no notification to
        send."""
        hooks = {"when": list(self.when), "command": self.command, "webhook": self.webhook}
        return json.dumps(hooks) if self.when and (self.command or self.webhook) else None


def _check_words(words: Any) -> None:
    if not isinstance(words, list) or not words:
        raise ConfigError("is empty or no list of words; valid: a string or a list of strings", "notify.command")
    for word in words:
        if not isinstance(word, (str, int, float)) or "\0" in str(word):
            raise ConfigError(f"{word!r} is not a word; valid: strings and numbers", "notify.command")
