"""One word for how a run is, from journals of all kinds and what Slurm says."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slurmopt.run_folder import events
from slurmopt.run_folder.process import started_at
from slurmopt.runs import journal as journals
from slurmopt.runs.status.query import gather, without_foreign_job
from slurmopt.runs.status.state import Slurm, run_state
from slurmopt.slurm.queue_entry import QueueEntry

LATER = 3600.0
"""Long enough for every heartbeat to be old and every shared answer of squeue's to be newer."""


def entry(word: str, reason: str = "", restarts: int = 0, job: str = "7") -> QueueEntry:
    return QueueEntry(job, word, reason, "", None, None, None, restarts, "", "")


def seen(made, *entries: QueueEntry, after: float = LATER, problem: str | None = None) -> tuple[str, str | None]:
    """The state `after` seconds from now, by a squeue of that moment."""
    now = time.time() + after
    slurm = Slurm({one.job_id: one for one in entries}, asked=now, problem=problem)
    return run_state(journals.read(made.folder), slurm, False, now)


def test_a_run_from_launch_to_end(make_run) -> None:
    made = make_run()
    assert seen(made)[0] == "unsubmitted"
    made.submitted()
    assert seen(made, entry("PENDING", "Resources")) == ("pending", "waiting for nodes to become free (Resources)")
    made.attempt()
    assert seen(made, entry("RUNNING")) == ("running", None)
    made.event("signal", attempt=0, signal="USR1")
    assert seen(made, entry("RUNNING"))[0] == "stopping"
    made.end("requeue").event("requeue", attempt=0, job="7")
    assert seen(made, entry("PENDING", "BeginTime"))[0] == "requeued"
    made.attempt(1)
    assert seen(made, entry("RUNNING"))[0] == "running"
    made.end("finished", 1)
    assert seen(made) == ("finished", None)


def test_an_end_is_told_with_its_cause(make_run) -> None:
    failed = make_run("failed").submitted().attempt().end("user error", exit_code=1, rank=1, error="ValueError: no")
    assert seen(failed) == ("failed", "user error, rank 1: ValueError: no")
    killed = make_run("killed").submitted().attempt().end("killed", error="ranks 0-3 ended without a report")
    assert seen(killed) == ("killed", "ranks 0-3 ended without a report")
    lost = make_run("lost").submitted().attempt()
    assert seen(lost)[0] == "lost"
    assert "job 7" in str(seen(lost)[1])


def test_cancelling_before_during_and_after(make_run) -> None:
    pending = make_run("pending").submitted().event("cancel", job="7")
    assert seen(pending, entry("CANCELLED"))[0] == "cancelled"
    running = make_run("running").submitted().attempt().event("cancel", job="7")
    assert seen(running, entry("COMPLETING"))[0] == "stopping"
    assert seen(running)[0] == "cancelled"
    assert seen(running.end("killed"))[0] == "cancelled"
    finished = make_run("finished").submitted().attempt().event("cancel", job="7").end("finished")
    assert seen(finished)[0] == "finished"
    failed = make_run("failed").submitted().attempt().event("cancel", job="7").event("cancel-failed", job="7")
    assert seen(failed, entry("RUNNING"))[0] == "running"


def test_a_cancelled_run_is_not_stopping_because_a_retry_has_just_failed(make_run) -> None:
    """Slurm forgets jobs minutes after their end; the journal's newest lines are of a retry that broke off."""
    made = make_run().submitted().event("cancel", job="7")
    told = events.read(made.folder.events)
    made.folder.events.write_text("".join(json.dumps({**one, "time": one["time"] - 600}) + "\n" for one in told))
    made.event("retry", changes={}).event("submitting", token="lost", backend="sbatch")
    assert seen(made, after=0) == ("cancelled", None)
    assert seen(made, entry("COMPLETING"), after=0) == ("stopping", None)


def test_a_job_that_slurm_itself_starts_again_has_not_ended(make_run) -> None:
    made = make_run().submitted().attempt().event("signal", attempt=0, signal="TERM").end("killed", exit_code=143)
    assert seen(made, after=0)[0] == "stopping"
    assert seen(made, entry("PENDING", "BeginTime", restarts=1), after=0)[0] == "requeued"
    assert seen(made, entry("PENDING", "BeginTime", restarts=1))[0] == "requeued"
    assert seen(made, entry("FAILED"))[0] == "killed"
    assert seen(made, entry("CANCELLED"))[0] == "cancelled"
    assert seen(made)[0] == "killed"
    assert seen(made.attempt(1), entry("RUNNING", restarts=1))[0] == "running"


def test_a_squeue_that_is_older_than_the_journal_is_not_believed(make_run) -> None:
    made = make_run().submitted()
    assert seen(made, after=0)[0] == "pending"
    made.attempt()
    assert seen(made, entry("PENDING", "Priority"), after=0) == ("running", None)
    assert seen(made, after=0) == ("running", None)


def test_a_job_that_slurm_ended_without_a_verdict(make_run) -> None:
    made = make_run().submitted().attempt()
    assert seen(made, entry("NODE_FAIL"))[0] == "killed"
    assert "node failure" in str(seen(made, entry("NODE_FAIL"))[1])
    assert seen(made, entry("TIMEOUT"))[0] == "killed"
    assert seen(made, entry("COMPLETED"))[0] == "lost"


def test_without_an_answer_from_slurm_journal_and_heartbeats_tell(make_run) -> None:
    made = make_run().submitted()
    assert seen(made, problem="down")[0] == "pending"
    made.attempt().beat(step=3)
    (status,), problem = gather([made.folder])
    assert (status.state, status.progress.step) == ("running", 3)
    assert "squeue" in str(problem)
    assert seen(made, problem="down")[0] == "unknown"


def test_a_launch_that_died_while_submitting_is_asked_about_for_some_days(make_run) -> None:
    made = make_run().event("submitting", token="t", backend="sbatch")
    (status,), problem = gather([made.folder])
    assert status.state == "unsubmitted"
    assert "squeue" in str(problem)
    week = 7 * 86400
    told = [{**event, "time": event["time"] - week} for event in events.read(made.folder.events)]
    made.folder.events.write_text("".join(json.dumps(event) + "\n" for event in told))
    (status,), problem = gather([made.folder])
    assert (status.state, problem) == ("unsubmitted", None)
    _, problem = gather([made.folder], fresh=True)  # before something is done about it
    assert "squeue" in str(problem)


def test_a_new_submission_makes_the_old_end_history(make_run) -> None:
    made = make_run().submitted().attempt().event("cancel", job="7").end("killed")
    made.submitted("8")
    assert seen(made, entry("PENDING", job="8"))[0] == "pending"
    assert journals.read(made.folder).jobs == ["7", "8"]


def test_a_job_quicker_than_its_launcher(make_run) -> None:
    made = make_run().event("submitting", token="t", backend="sbatch").attempt().end("finished")
    assert seen(made)[0] == "finished"
    assert seen(made.event("submitted", token="t", backend="sbatch", job="7"))[0] == "finished"


@pytest.fixture
def sleeper() -> Iterator[Callable[[Path], subprocess.Popen[bytes]]]:
    """Starts processes that look like the runner of a run."""
    started: list[subprocess.Popen[bytes]] = []

    def start(run: Path) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["/bin/sh", "-c", "/bin/sleep 600; exit", str(run)], start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_local_run_lives_as_long_as_its_very_process(make_run, sleeper) -> None:
    made = make_run()
    process = sleeper(made.folder.path)
    here, pid = socket.gethostname(), process.pid
    runner = {"backend": "local", "host": here, "pid": pid, "pid_started": started_at(pid)}
    made = made.submitted(f"local-{pid}", **runner).attempt(job=f"local-{pid}")
    assert seen(made)[0] == "running"
    another = make_run("another").submitted("local-1", **{**runner, "pid_started": 1}).attempt(job="local-1")
    assert seen(another)[0] == "lost"
    elsewhere = make_run("elsewhere").submitted("local-2", **{**runner, "host": "login9"}).attempt(job="local-2")
    assert seen(elsewhere) == ("unknown", "it ran on login9; ask there")
    stranger = make_run("stranger").submitted(f"local-{pid}", **runner).attempt(job=f"local-{pid}")
    assert seen(stranger)[0] == "lost"  # an edited journal names somebody else's process
    process.kill()
    process.wait()
    assert seen(made)[0] == "lost"


def test_a_job_that_only_has_the_runs_number_is_not_the_runs(make_run) -> None:
    journal = journals.read(make_run().submitted().folder)

    def known(entry: QueueEntry) -> bool:
        return bool(without_foreign_job(journal, Slurm({"7": entry})).jobs)

    foreign = replace(entry("RUNNING"), command="/home/ada/other.sh")
    assert not known(foreign)
    assert known(replace(foreign, comment="mine t7"))
    assert known(replace(foreign, command=str(journal.folder.script)))


HOSTILE = [
    '{"event": "end", "attempt": "x", "outcome": {"a": 1}, "time": "soon"}',
    '{"event": "attempt", "attempt": [], "job": {}, "nodes": [1, null, "n"], "time": 1e400}',
    '{"event": "submitted", "job": null, "pid": "self", "host": 5, "pid_started": {}}',
    '{"event": "submitted", "job": "local-1", "pid": 99999999999999999999, "host": "' + socket.gethostname() + '"}',
    '{"event": ["list"]}',
    '{"event": "submitted", "job": "../../../etc/passwd"}',
    '{"event": "submitted", "job": "--user=root"}',
    '{"event": "submitted", "job": "' + "9" * 5000 + '"}',
    '{"event": "no word of ours", "time": NaN}',
    '{"event": "cre',
    "\udcff\udcc0 no text",
    "[" * 100_000,
    '{"event": "attempt", "attempt": ' + "9" * 5000 + "}",
    '{"event": "attempt", "attempt": 1e308, "time": -1e308, "nodes": "\\ud800\\u001b[2J"}',
    '{"event": "end", "outcome": "user error", "error": "two\\nlines\\u001b[2J", "rank": true}',
]


@pytest.mark.parametrize("line", HOSTILE)
@pytest.mark.parametrize("started", [False, True])
def test_a_hostile_journal_crashes_nothing(make_run, capsys, line: str, started: bool) -> None:
    from slurmopt.cli import main

    made = make_run()
    if started:
        made.submitted().attempt(rank_0="log\n")
        made.folder.heartbeat(0, 0).parent.mkdir(parents=True)
        made.folder.heartbeat(0, 0).write_text(
            '{"rank": "a", "world_size": [], "node": {}, "pid": null, "step": "x", "time": "y", '
            '"metrics": [1], "outcome": 3}'
        )
    with open(made.folder.events, "ab") as file:
        file.write(os.fsencode(line) + b"\n")
    for words in (["status"], ["status", "--json"], ["status", "--all"], ["list"], ["logs", "--errors"], ["history"]):
        assert main(words) == 0, words
        assert "\x1b" not in capsys.readouterr().out


def test_a_journal_that_cannot_be_read_is_said_to_be_so(make_run) -> None:
    made = make_run()
    made.folder.events.unlink()
    made.folder.events.mkdir()
    (status,), _ = gather([made.folder])
    assert status.state == "unknown"
    assert "it is a folder, not a regular file" in str(status.detail)


def ended(make_run, name: str, outcome: str = "killed", **fields):
    return make_run(name).submitted().attempt().end(outcome, **fields)


def test_an_end_that_says_what_is_next_is_not_the_runs_end(make_run) -> None:
    why = "it comes back after: preemption; 3 more such ends are allowed"
    made = ended(make_run, "slurm", cause="preemption", next="slurm", reason=why)
    word, detail = seen(made, entry("PENDING", "BeginTime", restarts=1))
    assert word == "requeued"
    assert str(detail).startswith(f"{why}; its start time has not come")
    assert seen(made, after=0) == ("requeued", why)
    assert seen(made) == ("lost", "Slurm no longer knows job 7, and it was to start the next attempt")
    assert seen(made, entry("FAILED"))[0] == "killed"
    itself = ended(make_run, "itself", "requeue", cause="time limit", next="requeue", reason="asked for")
    assert seen(itself, entry("RUNNING")) == ("requeued", "time limit: asked for")
    assert seen(itself.attempt(1), entry("RUNNING", restarts=1))[0] == "running"


def test_an_end_that_nothing_follows_is_the_runs_end_whatever_was_asked_for(make_run) -> None:
    idle = "no progress: the last 2 attempts added no checkpointed step (restart.no_progress is 2)"
    stuck = ended(make_run, "stuck", "requeue", cause="time limit", next=None, reason=idle)
    assert seen(stuck, entry("COMPLETED")) == ("killed", f"time limit: {idle}")
    asked = ended(make_run, "asked", "requeue", cause="asked", next=None, reason=idle)
    assert seen(asked)[0] == "failed"
    assert idle in str(seen(asked)[1])
    final = ended(make_run, "final", cause="cancelled", next=None)
    assert seen(final)[0] == "cancelled"
    by_term = make_run("term").submitted().attempt().event("signal", attempt=0, signal="TERM")
    by_term.end("killed", cause="hang", next=None, error="rank 1 stood still")
    assert seen(by_term, after=0) == ("killed", "hang: rank 1 stood still")


def test_a_run_that_needs_a_fresh_submission_waits_for_tend_and_can_be_cancelled(make_run, capsys) -> None:
    from slurmopt.cli import main

    made = ended(make_run, "mine", "requeue", cause="time limit", next="submit", reason="the partition's limit")
    for entries in ([], [entry("COMPLETED")], [entry("COMPLETING")]):
        word, detail = seen(made, *entries)
        assert word == "requeued"
        assert str(detail).startswith(
            "time limit: the partition's limit; it waits for a fresh submission: `slurmopt tend`"
        )
    assert main(["status"]) == 0
    assert "slurmopt tend mine/" in capsys.readouterr().out
    assert seen(made.event("cancel", job="7"))[0] == "cancelled"
    refused = ended(make_run, "refused", "requeue", cause="time limit", next="requeue")
    refused.event("requeue-refused", attempt=0, job="7", reason="not allowed")
    assert "slurmopt tend" in str(seen(refused)[1])
    refused.submitted("8")
    assert seen(refused, entry("PENDING", job="8"))[0] == "pending"


def test_a_late_verdict_does_not_overrule_the_attempts_own(make_run) -> None:
    made = ended(make_run, "mine", "finished", cause="finished", next=None)
    made.event("end", attempt=0, outcome="killed", cause="node failure", next="submit", by="tend")
    assert seen(made) == ("finished", None)
    silent = make_run("silent").submitted().attempt()
    silent.event("end", attempt=0, outcome="killed", cause="node failure", next="submit", by="tend")
    assert seen(silent)[0] == "requeued"


def test_the_page_names_budgets_and_the_retry_that_helps(make_run, capsys) -> None:
    from slurmopt.cli import main

    made = make_run().submitted()
    made.folder.config.write_text("restart: {budgets: {node_failure: 7, hang: '${oc.env:HANGS}'}}\n")
    ends = ["hang", "node failure", "time limit", "node failure", "hang"]
    for number, cause in enumerate(ends):
        made.attempt(number).end("killed", number, cause=cause, next="slurm", reason="so")
    made.attempt(len(ends)).end("killed", len(ends), cause="out of memory", next=None, reason="restart.budgets… is 0")
    assert main(["status"]) == 0
    page = capsys.readouterr().out
    assert "  budget     time limit 1, node failure 2 of 7, hang 2\n" in page
    assert "out of memory 1" not in page
    assert "restart.budgets… is 0" in page
    assert page.rstrip().endswith("--more-memory 1.5")
    made.event("retry", changes={}).submitted("8").attempt(9, "8").end("killed", 9, cause="time limit", next=None)
    assert main(["status"]) == 0
    page = capsys.readouterr().out
    assert "  budget " not in page
    assert page.rstrip().endswith("--more-time 2")
