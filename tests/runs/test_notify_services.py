"""What Slack, Discord, Teams, mail services, sendmail and the desktop receive, and that hostile text is only text."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from private_cluster import wait_until
from runs.receiver import SECRET, Receiver, call, receiving, told

from slurmopt.cli import main
from slurmopt.config.composition.compose import compose
from slurmopt.config.composition.settings import settings
from slurmopt.notify.webhook import format_of
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.desktop import show_end

HOSTILE = "<!channel> @everyone <@U1> *b* `c` [x](http://evil) &amp; <b>\\n\x1b[31m"
DUMP_ARGS = "#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done >> {log}\n"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture
def failed(make_run) -> Any:
    fields = {"cause": "user error", "error": HOSTILE, "next": None, "reason": "restart.budgets.user_error is 0"}
    return make_run("mine", "one").submitted().attempt().end("user error", **{**fields, "rank": 3, "node": "node2"})


def posted(run: Any, receiver: Receiver, form: str) -> dict[str, Any]:
    assert call(run, webhook="${oc.env:HOOK}", format=form, env={"HOOK": receiver.url}) == ""
    ((_, body),) = receiver.got
    return body


def next_of(run: Any) -> str:
    return f"next: slurmopt logs {run.folder.path} --errors"


@pytest.mark.parametrize("outcome", ["finished", "user error"])
def test_the_next_command_works_as_it_is_printed_in_any_directory(
    make_run, receiver, tmp_path: Path, monkeypatch, capsys, outcome: str
) -> None:
    run = make_run("it's mine", "one").submitted().attempt(rank_0="oops\n").end(outcome, cause=outcome, next=None)
    assert call(run, webhook=receiver.url, format="slack") == ""
    program, *words = shlex.split(receiver.got[0][1]["text"].splitlines()[-1].removeprefix("next: "))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert (program, main(words)) == ("slurmopt", 0)
    assert "it's mine/one" in capsys.readouterr().out


def test_slack_gets_text_without_mentions_or_links(failed, receiver) -> None:
    body = posted(failed, receiver, "slack")
    assert set(body) == {"text", "mrkdwn", "unfurl_links", "unfurl_media"}
    assert (body["mrkdwn"], body["unfurl_links"], body["unfurl_media"]) == (False, False, False)
    title, error, reason, following = body["text"].split("\n")
    assert title == "mine/one failed (user error), attempt 0"
    assert error.startswith("&lt;!channel&gt; @everyone &lt;@U1&gt; *b*")
    assert error.endswith("&amp;amp; &lt;b&gt;\\n\\x1b[31m (rank 3 on node2)")
    assert reason == "Not restarted: an error in your code (restart.budgets.user_error is 0)"
    assert following == next_of(failed)
    assert "<" not in body["text"]


def test_discord_gets_escaped_markdown_and_mentions_nobody(failed, receiver) -> None:
    body = posted(failed, receiver, "discord")
    assert body["allowed_mentions"] == {"parse": []}
    assert body["flags"] == 4
    assert r"\<!channel\> \@everyone \<\@U1\> \*b\* \`c\` \[x\]\(http\://evil\)" in body["content"]


def test_discord_gets_no_more_than_it_takes_and_the_command_whole(make_run, receiver) -> None:
    run = make_run("mine", "long").submitted().attempt()
    run.end("user error", cause="user error", error="*" * 5000, next=None, reason="_" * 5000)
    body = posted(run, receiver, "discord")
    assert len(body["content"]) <= 2000
    assert body["content"].endswith(r"\-\-errors")


def test_teams_gets_a_card_of_plain_text_runs(failed, receiver) -> None:
    body = posted(failed, receiver, "teams")
    (attachment,) = body["attachments"]
    assert (body["type"], attachment["contentType"]) == ("message", "application/vnd.microsoft.card.adaptive")
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.2")
    assert "msteams" not in card
    runs = [run for block in card["body"] for run in block["inlines"]]
    assert {run["type"] for run in runs} == {"TextRun"}
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert runs[0]["text"] == "mine/one failed (user error), attempt 0"
    assert runs[1]["text"].startswith("<!channel> @everyone")
    assert runs[-1]["text"] == next_of(failed)


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("https://hooks.slack.com/services/T0/B0/x", "slack"),
        ("https://hooks.slack.com/triggers/T0/1/x", "json"),
        ("https://hooks.slack.com.evil.example/services/T0/B0/x", "json"),
        ("https://discord.com/api/webhooks/1/x", "discord"),
        ("https://canary.discord.com/api/webhooks/1/x", "discord"),
        ("https://acme.webhook.office.com/webhookb2/x", "teams"),
        ("https://prod-1.westeurope.logic.azure.com/workflows/x", "json"),
        ("https://mattermost.example.org/hooks/x", "json"),
        ("https://[broken", "json"),
    ],
)
def test_the_format_follows_the_host_only_where_that_is_certain(url: str, form: str) -> None:
    assert format_of(url) == form


def test_a_finished_run_tells_its_top_finding_and_what_it_costs(make_run, receiver) -> None:
    now = time.time()
    run = make_run("mine", "one").attempt().attempt(1).beat(0, step=30).beat(1, step=40)
    (run.folder.path / "config.yaml").write_text("{}\n")
    run.folder.events.write_text("")
    run.event("submitted", backend="sbatch", job="7", time=now - 9000)
    run.event("attempt", attempt=0, job="7", nodes="node1", time=now - 8000)
    run.end("infrastructure", cause="node failure", next="requeue", reason="x", step=30, time=now - 4000)
    run.event("attempt", attempt=1, job="7", nodes="node1", time=now - 3900)
    run.end("finished", 1, cause="finished", next=None, reason="it is done", step=40, time=now)
    assert call(run, attempt=1, webhook=receiver.url, format="slack") == ""
    title, finding, following = receiver.got[0][1]["text"].split("\n")
    assert title == "mine/one finished, attempt 1"
    assert "CPU-hours)" in finding
    assert following == f"next: slurmopt report {run.folder.path}"


SERVICES = {
    "sendgrid": ("Authorization", f"Bearer {SECRET}"),
    "postmark": ("X-Postmark-Server-Token", SECRET),
    "resend": ("Authorization", f"Bearer {SECRET}"),
}


def mail(service: str, **more: str) -> dict[str, Any]:
    return {"to": ["ada@example.org", "bob@example.org"], "service": service, "sender": "cluster@example.org", **more}


@pytest.mark.parametrize("service", SERVICES)
def test_a_mail_service_gets_the_message_and_the_token_as_a_header(failed, receiver, service: str) -> None:
    email = mail(service, token="${oc.env:KEY}", url=receiver.url)
    assert call(failed, email=email, env={"KEY": SECRET}) == ""
    ((_, body),) = receiver.got
    name, value = SERVICES[service]
    assert receiver.headers[0][name] == value
    subject = "slurmopt: mine/one failed (user error), attempt 0"
    if service == "sendgrid":
        to = [{"email": "ada@example.org"}, {"email": "bob@example.org"}]
        ((content,),) = [body.pop("content")]
        assert body == {
            "personalizations": [{"to": to}],
            "from": {"email": "cluster@example.org"},
            "subject": subject,
        }
        assert content["type"] == "text/plain"
        text = content["value"]
    elif service == "postmark":
        text = body.pop("TextBody")
        to = "ada@example.org, bob@example.org"
        assert body == {"From": "cluster@example.org", "To": to, "Subject": subject}
    else:
        text = body.pop("text")
        assert body == {"from": "cluster@example.org", "to": email["to"], "subject": subject}
    assert next_of(failed) in text.splitlines()
    assert [(one["event"], one["how"]) for one in told(failed)] == [("notified", "email")]
    assert SECRET not in failed.folder.events.read_text()


def test_a_redirect_is_not_followed_with_the_token(failed, receiver) -> None:
    receiver.status, receiver.location = 302, receiver.url + "/elsewhere"
    said = call(failed, email=mail("resend", token="${oc.env:KEY}", url=receiver.url), env={"KEY": SECRET})
    assert said == "slurmopt: notify.email: the server answered 302\n"
    assert len(receiver.got) == 1


def test_a_token_that_is_no_header_is_one_line_without_it(failed, receiver) -> None:
    key = f"{SECRET}\r\nX-Evil: 1"
    said = call(failed, email=mail("resend", token="${oc.env:KEY}", url=receiver.url), env={"KEY": key})
    assert len(said.splitlines()) == 1
    assert SECRET not in said
    assert receiver.got == []


def programs(folder: Path, **scripts: str) -> str:
    """A folder with these programs, as a PATH."""
    folder.mkdir(exist_ok=True)
    for name, script in scripts.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def test_sendmail_gets_a_message_and_no_address_as_an_argument(failed, tmp_path: Path) -> None:
    script = f'#!/bin/sh\necho "$@" > {tmp_path}/argv\ncat > {tmp_path}/message\n'
    path = programs(tmp_path / "mta", sendmail=script)
    assert call(failed, email={"to": ["ada@example.org"], "service": "sendmail"}, env={"PATH": path}) == ""
    assert (tmp_path / "argv").read_text() == "-t -i\n"
    message = message_from_bytes((tmp_path / "message").read_bytes(), policy=default)
    assert (message["To"], message["From"]) == ("ada@example.org", None)
    assert message["Subject"] == "slurmopt: mine/one failed (user error), attempt 0"
    assert next_of(failed) in message.get_content().splitlines()


@pytest.mark.skipif(shutil.which("sendmail", path="/usr/sbin:/usr/lib:/sbin:/usr/bin") is not None, reason="it is here")
def test_a_machine_without_sendmail_says_what_works_instead(failed) -> None:
    said = call(failed, email={"to": ["ada@example.org"], "service": "sendmail"})
    assert said.startswith("slurmopt: notify.email: this machine has no sendmail; valid: notify.email.service=sendgrid")


def test_the_desktop_is_told_once_and_takes_no_markup(failed, tmp_path: Path) -> None:
    path = programs(tmp_path / "tools", **{"notify-send": DUMP_ARGS.format(log=tmp_path / "shown")})
    for _ in range(2):
        assert call(failed, desktop=True, env={"PATH": path, "DISPLAY": ":0"}) == ""
    options = ["--app-name=slurmopt", "--urgency=critical", "--", "mine/one failed (user error), attempt 0"]
    shown = (tmp_path / "shown").read_text().splitlines()
    assert shown[:4] == options
    assert shown[4].startswith("&lt;!channel&gt; @everyone")
    assert "<" not in shown[4]
    assert r"\\x1b[31m" in shown[4]
    assert shown[-1] == next_of(failed)
    assert [(one["event"], one["how"]) for one in told(failed)] == [("notified", "desktop")]


@pytest.mark.parametrize("env", [{"DISPLAY": ":0", "SLURM_JOB_ID": "7"}, {"DISPLAY": "", "WAYLAND_DISPLAY": ""}])
def test_no_desktop_is_tried_in_a_job_or_without_a_display(failed, tmp_path: Path, env: dict[str, str]) -> None:
    path = programs(tmp_path / "tools", **{"notify-send": DUMP_ARGS.format(log=tmp_path / "shown")})
    assert call(failed, desktop=True, env={"PATH": path, **env}) == ""
    assert not (tmp_path / "shown").exists()
    assert told(failed) == []


def test_who_waits_for_a_run_is_told_on_the_desktop(failed, tmp_path: Path, monkeypatch) -> None:
    path = programs(tmp_path / "tools", **{"notify-send": DUMP_ARGS.format(log=tmp_path / "shown")})
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("DISPLAY", ":0")
    failed.folder.config.write_text("notify: {desktop: true, when: [failed]}\n")
    show_end(failed.folder)
    show_end(failed.folder)
    assert (tmp_path / "shown").read_text().count("mine/one failed") == 1


def test_a_local_run_tells_the_desktop_of_its_machine(project: Path, tmp_path: Path) -> None:
    path = programs(tmp_path / "tools", **{"notify-send": DUMP_ARGS.format(log=tmp_path / "shown")})
    words = [
        "task.command=[false]",
        "launch.backend=local",
        "notify.desktop=true",
        "launch.name=desk",
        "launch.id=one",
    ]
    run = SimpleNamespace(folder=RunFolder(project / "runs" / "desk" / "one"))
    command = [sys.executable, "-m", "slurmopt.launch", *words]
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", "DISPLAY": ":0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 1, done.stderr
    # the launch returns at the verdict; the batch shell tells after it
    wait_until(lambda: (tmp_path / "shown").exists() and told(run), 30, "the desktop is told")
    assert [(one["event"], one["how"]) for one in told(run)] == [("notified", "desktop")]
    assert (tmp_path / "shown").read_text().count("failed (user error), attempt 0") == 1


def test_the_config_becomes_hooks_and_keeps_the_token_out(project, monkeypatch) -> None:
    monkeypatch.setenv("KEY", SECRET)
    email = "notify.email={to: ada@example.org, service: postmark, sender: c@example.org, token: '${oc.env:KEY}'}"
    hooks = settings(compose(["task.command=[true]", email, "notify.format=slack", "notify.desktop=true"])).notify
    made = json.loads(hooks.to_json_arg() or "")
    assert made["email"]["to"] == ["ada@example.org"]
    assert made["email"]["token"] == "${oc.env:KEY}"
    assert (made["format"], made["desktop"]) == ("slack", True)
    assert hooks.written_secrets() == []
    open_token = "notify.email={to: ada@example.org, service: resend, sender: c@example.org, token: literal}"
    words = ["task.command=[true]", open_token, "notify.webhook=https://literal.example"]
    assert settings(compose(words)).notify.written_secrets() == ["notify.webhook", "notify.email.token"]
