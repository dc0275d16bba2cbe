"""The group `notify`: notifications at the end of a run."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from slurmopt.config.check import one_of, text_or_null, true_or_false
from slurmopt.errors import ConfigError

FINAL = ("finished", "failed", "killed", "cancelled")
STATES = (*FINAL, "requeued")
FORMATS = ("json", "slack", "discord", "teams")
SERVICES = ("sendmail", "sendgrid", "postmark", "resend")
_WEB = ("http://", "https://", "${oc.env:")
_ADDRESS = re.compile(r"[^\s@,;<>\"()\\]+@[^\s@,;<>\"()\\]+")


@dataclass(kw_only=True)
class NotifyEmail:
    """An e-mail at the end of a run."""

    to: Any = None
    """The address, or a list of addresses; null: no e-mail."""

    service: str = "sendmail"
    """`sendmail`: the mail program of the machine where the attempt ends, if it has one; `sendgrid`, `postmark`,
    `resend`: the web API of that service, which needs `sender` and `token`."""

    sender: str | None = None
    """The address in `From`. Default: sendmail's. The services send only for addresses that you have verified there."""

    token: str | None = None
    """The key of the service's API. It is a secret: write `${oc.env:NAME}`, which is resolved when it is used."""

    url: str | None = None
    """The URL of the service, such as that of another region. Default: the service's own."""

    def __post_init__(self) -> None:
        self.to = [self.to] if isinstance(self.to, str) else self.to
        if self.to is not None and not (isinstance(self.to, list) and self.to):
            raise ConfigError(f"{self.to!r} is not valid; valid: an address, or a list of them", "notify.email.to")
        for name, addresses in (("to", self.to or ()), ("sender", [self.sender] if self.sender is not None else ())):
            for address in addresses:
                _check_address(address, f"notify.email.{name}")
        one_of(self.service, SERVICES, "notify.email.service")
        for name in ("token", "url"):
            text_or_null(getattr(self, name), f"notify.email.{name}")
        _check_url(self.url, "notify.email.url")
        if self.to and self.service != "sendmail":
            for name in ("sender", "token"):
                if getattr(self, name) is None:
                    raise ConfigError(f"is needed for notify.email.service={self.service}", f"notify.email.{name}")


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
    """A URL that receives a message by POST, in the form that `format` says. Such a URL is a secret: write
    `${oc.env:NAME}`, which is resolved when it is used."""

    format: str | None = None
    """The form of the webhook's message: `slack`, `discord`, `teams`, or `json`, the facts as one object. Default: by
    the host of the URL, `json` for one that is not known."""

    email: NotifyEmail = field(default_factory=NotifyEmail)
    """An e-mail."""

    desktop: bool = False
    """A notification on the desktop of the machine where you wait for the run (`slurmopt launch --wait`,
    `slurmopt status --watch`, the local backend), if it has one. A job on a compute node never tries."""

    def __post_init__(self) -> None:
        for state in self.when:
            one_of(state, STATES, "notify.when")
        text_or_null(self.webhook, "notify.webhook")
        _check_url(self.webhook, "notify.webhook")
        if self.format is not None:
            one_of(self.format, FORMATS, "notify.format")
        true_or_false(self.desktop, "notify.desktop")
        if self.command is not None:
            _check_words(self.command)

    def to_json_arg(self) -> str | None:
        """Returns the JSON argument of `python -m slurmopt.job.supervisor.notify`; None if there is no notification to
        send."""
        hooks = {"when": list(self.when), "command": self.command, "webhook": self.webhook}
        others = {
            "format": self.format,
            "email": asdict(self.email) if self.email.to else None,
            "desktop": self.desktop or None,
        }
        hooks |= {name: value for name, value in others.items() if value is not None}
        is_set = self.command or self.webhook or self.email.to or self.desktop
        return json.dumps(hooks) if self.when and is_set else None

    def written_secrets(self) -> list[str]:
        """The keys of secrets that are values of the config instead of `${oc.env:NAME}`."""
        secrets = {"notify.webhook": self.webhook, "notify.email.token": self.email.token if self.email.to else None}
        return [key for key, value in secrets.items() if value and not value.startswith("${")]


def _check_address(address: Any, key: str) -> None:
    if not isinstance(address, str) or not address.isprintable() or not _ADDRESS.fullmatch(address):
        raise ConfigError(f"{address!r} is not an address; valid: ada@example.org", key)


def _check_url(url: str | None, key: str) -> None:
    if url is not None and not url.startswith(_WEB):
        raise ConfigError("is not a URL; valid: https://…, or ${oc.env:NAME}", key)


def _check_words(words: Any) -> None:
    if not isinstance(words, list) or not words:
        raise ConfigError("is empty or no list of words; valid: a string or a list of strings", "notify.command")
    for word in words:
        if not isinstance(word, (str, int, float)) or "\0" in str(word):
            raise ConfigError(f"{word!r} is not a word; valid: strings and numbers", "notify.command")
