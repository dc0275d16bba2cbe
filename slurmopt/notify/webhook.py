"""The hook `notify.webhook`: the bodies that Slack, Discord, Teams and others accept.

Names and errors may come from others, so nothing in them is taken for markup or for a mention.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from slurmopt.notify import http
from slurmopt.notify.facts import lines, title
from slurmopt.notify.hook_error import filled

_HOSTS = {
    "slack": re.compile(r"hooks\.slack(-gov)?\.com/services/"),
    "discord": re.compile(r"((ptb|canary)\.)?discord(app)?\.com/api/"),
    "teams": re.compile(r"([\w-]+\.)?webhook\.office\.com/"),
}
"""Where the URLs lead whose format is certain. Flows of Power Automate take any JSON, so theirs is not."""
_DISCORD_MOST = 2000
_DISCORD_MARKUP = re.compile(r"([\\*_~`|<>\[\]()#:@-])")
_SUPPRESS_EMBEDS = 4


def post(url: str, chosen: str | None, facts: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Posts the facts in the chosen format. Raises HookError."""
    address = filled(url, environ).strip()
    http.post(address, _BODIES[chosen or format_of(address)](facts))


def format_of(address: str) -> str:
    """The format that the server at `address` accepts: `json`, where nothing tells."""
    try:
        parts = urlsplit(address)
        place = f"{parts.hostname}{parts.path}"
    except ValueError:
        return "json"
    return next((name for name, host in _HOSTS.items() if host.match(place)), "json")


def _json(facts: dict[str, Any]) -> dict[str, Any]:
    return facts


def _slack(facts: dict[str, Any]) -> dict[str, Any]:
    """Slack's control characters are `&`, `<` and `>`: `<!channel>` is a mention, `<https://…|text>` a link."""
    text = "\n".join([title(facts), *lines(facts)])
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(char, entity)
    return {"text": text, "mrkdwn": False, "unfurl_links": False, "unfurl_media": False}


def _discord(facts: dict[str, Any]) -> dict[str, Any]:
    """At most 2,000 characters; nobody is mentioned, and links get no preview."""
    texts = ("\n".join([title(facts), *lines(facts, longest)]) for longest in (500, 200, 80))
    escaped = [_DISCORD_MARKUP.sub(r"\\\1", text) for text in texts]
    content = next((text for text in escaped if len(text) <= _DISCORD_MOST), escaped[-1][:_DISCORD_MOST])
    return {"content": content, "allowed_mentions": {"parse": []}, "flags": _SUPPRESS_EMBEDS}


def _teams(facts: dict[str, Any]) -> dict[str, Any]:
    """A card of text runs, which have no markup; a mention would need an entity beside the text."""
    head = {"type": "TextRun", "text": title(facts), "weight": "Bolder"}
    rest = [{"type": "TextRun", "text": line} for line in lines(facts)]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.2",
        "body": [{"type": "RichTextBlock", "inlines": [run]} for run in (head, *rest)],
    }
    content_type = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": content_type, "contentUrl": None, "content": card}]}


_BODIES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "json": _json,
    "slack": _slack,
    "discord": _discord,
    "teams": _teams,
}
