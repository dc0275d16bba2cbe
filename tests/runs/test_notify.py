"""The owner is told how a run ended: by a real program, a real web server, once, and whatever goes wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from runs.receiver import FINAL, SECRET, Receiver, call, receiving, told

from slurmopt.config.composition.compose import compose
from slurmopt.config.composition.settings import settings
from slurmopt.errors import ConfigError
from slurmopt.notify.facts import state_of

DUMP = (
    "import json, os, sys; facts = json.load(sys.stdin); facts['env'] = dict(os.environ);"
    "json.dump(facts, open('told', 'a'))"
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def notify(run: Any, *words: str, when: str = FINAL, **env: str) -> str:
    """What the batch shell calls; what it said on standard error."""
    hooks: dict[str, Any] = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2], strict=True))
    hooks |= {"command": json.loads(hooks["command"])} if "command" in hooks else {}
    return call(run, when=when, env=env, **hooks)


@pytest.fixture
def failed(make_run) -> Any:
    fields = {
        "cause": "user error",
        "error": "ValueError: nan",
        "next": None,
        "reason": "restart.budgets.user_error is 0",
    }
    return make_run("mine", "one").submitted().attempt().end("user error", **fields, step=12)


def test_a_command_gets_the_facts_as_variables_and_as_json(failed) -> None:
    words = json.dumps([sys.executable, "-c", DUMP, "${oc.env:WHO}", "two words; $(true)"])
    assert notify(failed, "--command", words, WHO="ada") == ""
    facts = json.loads((failed.folder.path / "told").read_text())
    said = "mine/one failed (user error), attempt 0: ValueError: nan"
    why = "Not restarted: an error in your code (restart.budgets.user_error is 0)"
    assert facts["text"] == f"{said}. {why}; next: slurmopt logs {failed.folder.path} --errors"
    assert (facts["state"], facts["step"], facts["job"], facts["folder"]) == (
        "failed",
        12,
        "7",
        str(failed.folder.path),
    )
    env = facts["env"]
    assert (env["SLURMOPT_STATE"], env["SLURMOPT_CAUSE"], env["SLURMOPT_ATTEMPT"]) == ("failed", "user error", "0")
    assert (env["SLURMOPT_RUN_FOLDER"], env["SLURMOPT_TEXT"]) == (facts["folder"], facts["text"])
    assert "SLURMOPT_FOLDER" not in env
    assert [(one["event"], one["attempt"], one["how"]) for one in told(failed)] == [("notified", 0, "command")]


def test_a_webhook_gets_it_once_and_its_url_is_written_nowhere(failed, receiver) -> None:
    for _ in range(2):
        assert notify(failed, "--webhook", "${oc.env:HOOK}", HOOK=receiver.url) == ""
    ((path, facts),) = receiver.got
    assert path == f"/{SECRET}"
    assert facts["text"].startswith("mine/one failed")
    assert SECRET not in failed.folder.events.read_text()
    assert [one["event"] for one in told(failed)] == ["notified"]


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (["--webhook", "${oc.env:HOOK}"], 500, "the server answered 500"),
        (["--webhook", "${oc.env:NONE}"], 200, "needs the environment variable NONE, which is not set here"),
        (["--webhook", "${oc.env:SECRET}"], 200, "is not a URL; valid: https://…"),
        (["--webhook", "http://${oc.env:SECRET} x:y/"], 200, "is not a URL, or what answers there is no web server"),
        (["--webhook", "http://127.0.0.1:1/${oc.env:SECRET}"], 200, "cannot be reached: connection refused"),
        (["--command", '["false", "${oc.env:SECRET}"]'], 200, "'false' ended with exit status 1"),
        (["--command", '["no-such-${oc.env:SECRET}"]'], 200, "'no-such-${oc.env:SECRET}' cannot be started"),
    ],
)  # fmt: skip
def test_a_hook_that_fails_is_one_line_without_its_secret(failed, receiver, words, status, reason) -> None:
    receiver.status = status
    said = notify(failed, *words, HOOK=receiver.url, SECRET=SECRET)
    assert said.startswith(f"slurmopt: notify.{words[0].removeprefix('--')}: {reason}")
    assert len(said.splitlines()) == 1
    (event,) = told(failed)
    assert event["event"] == "notify-failed"
    assert event["reason"].startswith(reason)
    assert SECRET not in said
    assert SECRET not in failed.folder.events.read_text()


def test_one_hook_that_fails_does_not_keep_the_other(failed, receiver) -> None:
    notify(failed, "--command", '["false"]', "--webhook", receiver.url)
    assert [(one["event"], one["how"]) for one in told(failed)] == [
        ("notify-failed", "command"),
        ("notified", "webhook"),
    ]
    assert len(receiver.got) == 1


def test_only_the_ends_that_were_asked_for_are_told(make_run, receiver) -> None:
    back = (
        make_run("mine", "back").submitted().attempt().end("killed", cause="preemption", next="requeue", reason="again")
    )
    running = make_run("mine", "running").submitted().attempt()
    notify(back, "--webhook", receiver.url)
    notify(running, "--webhook", receiver.url)
    assert receiver.got == []
    notify(back, "--webhook", receiver.url, when="requeued")
    ((_, facts),) = receiver.got
    said = "mine/back will come back (preemption), attempt 0: again"
    assert facts["text"] == f"{said}; next: slurmopt history {back.folder.path}"


@pytest.mark.parametrize(
    ("end", "state"),
    [
        ({"outcome": "finished", "cause": "finished", "next": None}, "finished"),
        ({"outcome": "killed", "cause": "hang", "next": None}, "killed"),
        ({"outcome": "killed", "cause": "cancelled", "next": None}, "cancelled"),
        ({"outcome": "infrastructure", "cause": "node failure", "next": "submit"}, "requeued"),
        ({"outcome": "user error", "cause": "user error", "next": None}, "failed"),
    ],
)
def test_an_end_is_a_state(end: dict[str, Any], state: str) -> None:
    assert state_of(end) == state


def test_the_config_says_who_is_told_and_keeps_the_secret_out(project, monkeypatch) -> None:
    monkeypatch.setenv("HOOK", SECRET)
    words = ["task.command=[true]", "notify.webhook=${oc.env:HOOK}", "notify.command=\"mail -s 'a b' ${oc.env:HOOK}\""]
    told = settings(compose([*words, "notify.when=[failed]"])).notify
    hooks = {"command": ["mail", "-s", "a b", "${oc.env:HOOK}"], "webhook": "${oc.env:HOOK}"}
    assert json.loads(told.to_json_arg() or "") == {"when": ["failed"], **hooks}
    assert settings(compose(["task.command=[true]"])).notify.to_json_arg() is None


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("notify.when=[finishd]", "notify.when: 'finishd' is not valid (did you mean 'finished'?)"),
        ("notify.webhook=file:///etc/passwd", "notify.webhook: is not a URL"),
        ("notify.command=[]", "notify.command: is empty"),
        ("notify.format=slak", "notify.format: 'slak' is not valid (did you mean 'slack'?)"),
        ("notify.email.to=ada", "notify.email.to: 'ada' is not an address; valid: ada@example.org"),
        ("notify.email.to='a@b.c\\n'", "notify.email.to: "),
        ("notify.email.service=gmail", "notify.email.service: 'gmail' is not valid"),
        ("notify.email={to: a@b.c, service: resend, sender: a@b.c}", "notify.email.token: is needed for notify.email."),
        ("notify.email={to: a@b.c, service: resend, token: x}", "notify.email.sender: is needed"),
        ("notify.email.url=ftp://x", "notify.email.url: is not a URL"),
        ("notify.desktop=perhaps", "notify.desktop"),
        ('notify.command="a \'b"', "notify.command: cannot be split into words"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(project, word: str, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(compose(["task.command=[true]", word]))
    assert str(refused.value).startswith(key)
