"""The hook `notify.email`: a message by the machine's sendmail, or by the web API of a mail service."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from slurmopt.notify import http
from slurmopt.notify.command import start
from slurmopt.notify.facts import lines, title
from slurmopt.notify.hook_error import HookError, filled

_MTA_FOLDERS = ("/usr/sbin", "/usr/lib", "/sbin")
"""Where sendmail is, although it is in nobody's PATH."""


class Letter(NamedTuple):
    """What a message says, to whom."""

    to: Sequence[str]
    sender: str | None
    subject: str
    text: str


def send(fields: Mapping[str, Any], facts: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Sends the message as `notify.email` says. Raises HookError."""
    text = "\n".join([title(facts), "", *lines(facts), "", f"folder: {facts['folder']}", f"job: {facts['job']}", ""])
    letter = Letter(list(fields["to"]), fields.get("sender"), f"slurmopt: {title(facts)}"[:200], text)
    service = fields.get("service") or "sendmail"
    if service == "sendmail":
        _sendmail(letter, environ)
        return
    address, header, body = _SERVICES[service]
    name, _, value = header.partition(": ")
    token = filled(str(fields.get("token") or ""), environ).strip()
    url = filled(fields.get("url") or address, environ).strip()
    http.post(url, body(letter), {name: value.replace("TOKEN", token)})


def _sendmail(letter: Letter, environ: Mapping[str, str]) -> None:
    """Hands the message to sendmail on standard input; the addresses stand in no command line."""
    from email.message import EmailMessage

    path = os.pathsep.join([environ.get("PATH", os.defpath), *_MTA_FOLDERS])
    program = shutil.which("sendmail", path=path)
    if program is None:
        raise HookError("this machine has no sendmail; valid: notify.email.service=sendgrid, postmark or resend")
    message = EmailMessage()
    message["To"] = ", ".join(letter.to)
    if letter.sender:
        message["From"] = letter.sender
    message["Subject"] = letter.subject
    message["Auto-Submitted"] = "auto-generated"  # so that no absence note answers
    message.set_content(letter.text)
    start([program, "-t", "-i"], "sendmail", message.as_bytes(), environ)


def _sendgrid(letter: Letter) -> dict[str, Any]:
    return {
        "personalizations": [{"to": [{"email": address} for address in letter.to]}],
        "from": {"email": letter.sender},
        "subject": letter.subject,
        "content": [{"type": "text/plain", "value": letter.text}],
    }


def _postmark(letter: Letter) -> dict[str, Any]:
    to = ", ".join(letter.to)
    return {"From": letter.sender, "To": to, "Subject": letter.subject, "TextBody": letter.text}


def _resend(letter: Letter) -> dict[str, Any]:
    return {"from": letter.sender, "to": list(letter.to), "subject": letter.subject, "text": letter.text}


_BEARER = "Authorization: Bearer TOKEN"
_SERVICES: dict[str, tuple[str, str, Callable[[Letter], dict[str, Any]]]] = {
    "sendgrid": ("https://api.sendgrid.com/v3/mail/send", _BEARER, _sendgrid),
    "postmark": ("https://api.postmarkapp.com/email", "X-Postmark-Server-Token: TOKEN", _postmark),
    "resend": ("https://api.resend.com/emails", _BEARER, _resend),
}
"""Service → its URL, the header with the token, and its body."""
