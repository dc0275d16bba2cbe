"""`slurmopt tend`: which runs are brought back, which are not, and what is written of that. Slurm's commands are small
programs here that answer as the real ones do; tests/launching/test_tend_on_slurm.py asks the real ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

from slurmopt.cli import main
from slurmopt.job.worker.command import outcome_of
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.recovery.orphans import has_ended
from slurmopt.runs.submit import unfinished_retry
from slurmopt.runs.submit.exactly_once import run_lock
from slurmopt.slurm.cluster import cache

FIELDS = 13
SQUEUE = """#!/bin/bash
echo squeue >> {calls}
[ -e {jobs}.asked ] && [ -e {jobs}.meanwhile ] && echo "$(< {jobs}.meanwhile)" >> "$(< {jobs}.journal)"
: > {jobs}.asked
format="${{@: -1}}"; field="${{format#JobArrayID:0}}"; field="${{field%%,*}}"; record="${{format##*Requeue:0}}"
while IFS='|' read -ra row; do
  for at in "${{!row[@]}}"; do printf '%s%s' "${{row[at]}}" "$([ $at = 12 ] && echo "$record" || echo "$field")"; done
done < {jobs}
"""
SBATCH = """#!/bin/bash
echo "sbatch $*" >> {calls}
[ -e {jobs}.slow ] && sleep 1
[ -e {jobs}.full ] && journal="$(< {jobs}.full)" && /bin/mv "$journal" {jobs}.aside && /bin/mkdir "$journal"
[ -e {jobs}.refused ] && {{ echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1; }}
echo 100
"""
SACCT = """#!/bin/bash
echo sacct >> {calls}
for word; do case $word in --delimiter=*) mark="${{word#*=}}";; esac; done
while IFS='|' read -r id state line; do
  printf '%s%s%s%s%s%s\\n' "$id" "$mark" "$state" "$mark" "$line" "$mark"
done < {jobs}.sacct
"""


class Slurm:
    """What squeue, sacct and sbatch answer, and what they were asked."""

    def __init__(self, folder: Path) -> None:
        self.jobs = folder / "jobs"
        self.jobs.touch()
        self._calls = folder / "calls"

    def has(self, job: str, state: str, run: RunFolder, ended: float = 60.0, comment: str = "") -> None:
        """squeue knows `job`; it ended `ended` seconds ago."""
        end = int(time.time() - ended)
        row = [
            job,
            state,
            "",
            "node1",
            str(end - 100),
            "1:00",
            "5:00",
            "0",
            "node1",
            comment,
            str(run.script),
            str(end),
            "1",
        ]
        with self.jobs.open("a") as file:
            file.write("|".join(row) + "\n")

    def accounts(self, *rows: tuple[str, str, RunFolder]) -> None:
        """Accounting runs, and has these jobs."""
        text = "".join(f"{job}|{state}|sbatch {run.script}\n" for job, state, run in rows)
        self.jobs.with_name("jobs.sacct").write_text(text)
        self.is_cluster("mini", accounting=True)

    def is_cluster(self, name: str, accounting: bool = False) -> None:
        """What `scontrol show config` has said a moment ago."""
        plain = {"cluster": name, "version": "", "controllers": [], "max_array_size": 1001, "job_requeue": True}
        rights = {"enforces_accounts": False, "enforces_qos": False, "accounts": None, "partitions": []}
        cache.write("facts", {**plain, **rights, "accounting": accounting}, time.time())

    def calls(self, word: str = "") -> list[str]:
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        return [line for line in lines if line.startswith(word)]


@pytest.fixture
def slurm(make_run: Any, tmp_path: Path) -> Slurm:
    made = Slurm(tmp_path)
    for name, text in (("squeue", SQUEUE), ("sbatch", SBATCH), ("sacct", SACCT)):
        program = tmp_path / ".tools" / name
        program.write_text(text.format(calls=tmp_path / "calls", jobs=made.jobs))
        program.chmod(0o755)
    made.is_cluster("mini")
    return made


@pytest.fixture
def stray(make_run: Callable[..., Any], slurm: Slurm) -> Callable[..., Any]:
    """Makes a run whose first attempt began, all of it two minutes ago."""

    def make(run_id: str = "one", config: str = "{}\n", attempt: bool = True) -> Any:
        run = make_run("mine", run_id)
        run.folder.config.write_text(config)
        run.folder.script.write_text(f"#!/bin/bash\nexport SLURMOPT_RUN_FOLDER={run.folder.path}\n")
        run.submitted("7")
        return run.attempt(0) if attempt else run

    return make


def age(run: Any, seconds: float = 120.0) -> None:
    """Makes the journal as old as that."""
    told = events.read(run.folder.events)
    run.folder.events.write_text("".join(json.dumps({**one, "time": one["time"] - seconds}) + "\n" for one in told))


def tend(capsys: Any, *words: str) -> list[dict[str, Any]]:
    assert main(["tend", "--json", *words]) == 0
    found: list[dict[str, Any]] = data_of(capsys.readouterr().out)
    return found


def told(run: Any) -> list[str]:
    return [event["event"] for event in events.read(run.folder.events)]


def end_of(run: Any) -> dict[str, Any]:
    return [event for event in events.read(run.folder.events) if event["event"] == "end"][-1]


@pytest.mark.parametrize("follows", ["submit", "slurm", "requeue"])
@pytest.mark.parametrize("state", ["PREEMPTED", "COMPLETED", None])
def test_a_run_that_should_go_on_is_submitted_again_once(stray, slurm, capsys, follows: str, state: str | None) -> None:
    run = stray().end("killed", cause="preemption", next=follows, reason="it comes back")
    age(run)
    if state:
        slurm.has("7", state, run.folder)
    (deed,) = tend(capsys)
    assert (deed["did"], deed["job"], deed["attempt"], deed["cause"]) == ("submitted", "100", 0, "preemption")
    assert told(run)[-2:] == ["submitting", "submitted"]
    slurm.has("100", "PENDING", run.folder)
    assert tend(capsys) == []
    (call,) = slurm.calls("sbatch")
    assert call.endswith(f" {run.folder.script}")


def test_the_dry_run_says_it_and_does_nothing(stray, slurm, capsys) -> None:
    run = stray().end("killed", cause="preemption", next="submit")
    age(run)
    before = run.folder.events.read_text()
    assert main(["tend", "--dry-run"]) == 0
    assert capsys.readouterr().out == "mine/one: would be submitted again (attempt 0: preemption)\n"
    assert (run.folder.events.read_text(), slurm.calls("sbatch")) == (before, [])


def test_what_slurm_still_has_is_left_to_it(stray, slurm, capsys) -> None:
    waiting = stray("waiting").end("killed", cause="requeued", next="slurm")
    running = stray("running")
    for run, state in ((waiting, "PENDING"), (running, "RUNNING")):
        age(run)
        slurm.jobs.write_text("")
        slurm.has("7", state, run.folder)
        assert tend(capsys, run.folder.id) == []
        cache.place("queue").unlink()


def test_a_job_that_ended_a_moment_ago_may_yet_be_requeued(stray, slurm, capsys) -> None:
    run = stray().end("killed", cause="preemption", next="slurm")
    age(run)
    slurm.has("7", "PREEMPTED", run.folder, ended=1)
    assert tend(capsys) == []


def test_a_submission_that_the_journal_does_not_know_counts_as_alive(stray, slurm, capsys) -> None:
    run = stray().end("killed", cause="preemption", next="submit")
    age(run)
    slurm.has("7", "PREEMPTED", run.folder)
    slurm.has("8", "PENDING", run.folder)
    assert tend(capsys) == []


@pytest.mark.parametrize("launched", [True, False])
def test_the_job_of_a_submission_that_broke_off_is_noted_once(stray, slurm, capsys, launched: bool) -> None:
    """By a tend, which had brought the run back; or by the launch itself."""
    run = stray(attempt=False)
    if launched:
        run.folder.events.write_text(json.dumps({"time": time.time(), "event": "created"}) + "\n")
    else:
        run.attempt(0).end("killed", cause="preemption", next="submit")
        slurm.has("7", "PREEMPTED", run.folder)
    run.event("submitting", token="slurmopt:lost", backend="sbatch")
    age(run)
    slurm.has("8", "PENDING", run.folder, comment="mine slurmopt:lost")
    before = told(run)
    assert main(["tend", "--dry-run"]) == 0
    assert capsys.readouterr().out == "mine/one: was submitted before as job 8; that would be noted now\n"
    assert told(run) == before
    (deed,) = tend(capsys)
    assert (deed["did"], deed["job"]) == ("noted", "8")
    assert told(run) == [*before, "submitted"]
    noted = events.read(run.folder.events)[-1]
    assert (noted["token"], noted["job"], noted["cluster"]) == ("slurmopt:lost", "8", "mini")
    assert (tend(capsys), slurm.calls("sbatch")) == ([], [])


@pytest.mark.parametrize("before", ["user error", "finished", "cancelled"])
def test_the_job_of_a_retry_that_broke_off_is_noted(stray, slurm, capsys, before: str) -> None:
    run = stray()
    if before == "cancelled":
        run.event("cancel")
    run.end("killed" if before == "cancelled" else before, cause=before, next=None)
    run.event("submitting", token="slurmopt:lost", backend="sbatch")
    unfinished_retry.begin(run.folder, "slurmopt:before", ())
    age(run)
    assert tend(capsys) == []
    slurm.has("8", "PENDING", run.folder, comment="mine slurmopt:lost")
    cache.place("queue").unlink()
    assert [(deed["did"], deed["job"]) for deed in tend(capsys)] == [("noted", "8")]
    assert not unfinished_retry.is_left(run.folder)
    assert (tend(capsys), slurm.calls("sbatch")) == ([], [])


def test_one_that_is_named_and_left_alone_says_why(stray, slurm, capsys) -> None:
    stray("over").end("user error", cause="user error", next=None)
    stray("waits").end("killed", cause="requeued", next="slurm")
    slurm.has("7", "PENDING", RunFolder(Path("runs/mine/waits").absolute()))
    assert main(["tend", "mine/over", "mine/waits", "--json"]) == 0
    said = capsys.readouterr()
    assert data_of(said.out) == []
    assert said.err.splitlines() == [
        "slurmopt: mine/over is failed and stays so; to let it go on: slurmopt retry mine/over",
        "slurmopt: mine/waits is requeued: nothing is to be done yet",
    ]


def test_one_that_tend_is_about_to_bring_back_is_not_called_over(stray, slurm, capsys) -> None:
    run = stray()
    age(run)
    slurm.has("7", "NODE_FAIL", run.folder, ended=2)
    assert main(["tend", "mine/one"]) == 0
    said = capsys.readouterr().err
    assert said.startswith("slurmopt: mine/one is killed: Slurm may still bring it back itself; repeat slurmopt tend")


def test_a_job_that_cannot_be_noted_is_told_and_noted_by_the_next_tend(stray, slurm, capsys) -> None:
    """The journal breaks once sbatch has been asked."""
    run = stray().end("killed", cause="preemption", next="submit")
    age(run)
    journal = run.folder.events
    slurm.jobs.with_name("jobs.full").write_text(f"{journal}\n")
    assert main(["tend"]) == 1
    said = capsys.readouterr().err
    assert f"mine/one: job 100 is submitted, but {journal} could not be written" in said
    assert "the next tend notes it" in said
    journal.rmdir()
    slurm.jobs.with_name("jobs.aside").rename(journal)
    slurm.has("100", "PENDING", run.folder, comment=events.read(journal)[-1]["token"])
    cache.place("queue").unlink()
    assert [(deed["did"], deed["job"]) for deed in tend(capsys)] == [("noted", "100")]
    assert len(slurm.calls("sbatch")) == 1


def test_a_launch_that_broke_off_long_ago_costs_no_question(stray, slurm, capsys) -> None:
    run = stray(attempt=False)
    run.folder.events.write_text("")
    run.event("submitting", token="slurmopt:lost", backend="sbatch")
    age(run, 8 * 86400)
    assert (tend(capsys), slurm.calls()) == ([], [])


def test_a_cancel_notes_no_older_job_for_a_submission_that_slurm_never_had(stray, slurm, tmp_path, capsys) -> None:
    """The resubmission was lost before sbatch: the run's job is the one before it."""
    scancel = tmp_path / ".tools" / "scancel"
    scancel.write_text("#!/bin/bash\n")
    scancel.chmod(0o755)
    run = stray().end("killed", cause="preemption", next="submit")
    run.event("submitting", token="t-lost", backend="sbatch")
    age(run)
    slurm.has("7", "PREEMPTED", run.folder)
    assert main(["cancel"]) == 0
    capsys.readouterr()
    assert [event.get("token") for event in events.read(run.folder.events, "submitted")] == ["t7"]
    assert main(["status", "--json"]) == 0
    assert data_of(capsys.readouterr().out)[0]["state"] == "cancelled"
    assert tend(capsys) == []


@pytest.mark.parametrize("began", [True, False])
def test_scancel_is_final(stray, slurm, capsys, began: bool) -> None:
    run = stray(attempt=began)
    age(run)
    if began:
        run.beat(0, ago=90).folder.hang(0).write_text('{"rank": 0}')
    slurm.has("7", "CANCELLED", run.folder)
    (deed,) = tend(capsys)
    assert (deed["did"], deed["cause"]) == ("cancelled", "cancelled" if began else None)
    assert run.folder.report.exists() == began
    assert main(["status", "one", "--json"]) == 0
    assert data_of(capsys.readouterr().out)[0]["state"] == "cancelled"
    slurm.jobs.write_text("")  # Slurm forgets it
    cache.place("queue").unlink()
    assert tend(capsys) == []
    assert slurm.calls("sbatch") == []


@pytest.mark.parametrize(("state", "written"), [("OUT_OF_MEMORY", True), ("NODE_FAIL", False)])
def test_a_run_that_tend_ends_has_its_report(stray, slurm, capsys, state: str, written: bool) -> None:
    run = stray()
    age(run)
    slurm.has("7", state, run.folder)
    assert main(["tend", "--dry-run"]) == 0
    assert not run.folder.report.exists()
    assert main(["tend"]) == 0
    assert run.folder.report.exists() == written, "one that was submitted again has not ended"
    assert not written or "mine/one: killed" in run.folder.report.read_text()


def test_a_cancel_that_no_batch_shell_hears_writes_the_report(stray, slurm, tmp_path, capsys) -> None:
    run = stray().end("requeue", cause="preemption", next="slurm")
    age(run)
    slurm.has("7", "PENDING", run.folder)
    scancel = tmp_path / ".tools" / "scancel"
    scancel.write_text(f"#!/bin/bash\n: > {slurm.jobs}\n")
    scancel.chmod(0o755)
    assert main(["cancel", "one"]) == 0
    assert capsys.readouterr().out == "mine/one (job 7) is cancelled\n"
    assert "mine/one: cancelled" in run.folder.report.read_text()


def test_a_report_that_cannot_be_written_is_a_line_and_no_failure(stray, slurm, tmp_path, capsys) -> None:
    run = stray()
    age(run)
    run.folder.report.mkdir()
    slurm.has("7", "OUT_OF_MEMORY", run.folder)
    assert main(["tend"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("slurmopt: the report was not written: ")
    run.folder.report.rmdir()
    assert main(["status", "one"]) == 0
    assert "report     slurmopt report mine/one --html" in capsys.readouterr().out


def test_a_run_that_was_cancelled_or_has_ended_costs_no_question(stray, slurm, capsys) -> None:
    cancelled, ended = stray("cancelled"), stray("ended")
    cancelled.event("cancel", job="7")
    ended.end("user error", cause="user error", next=None)
    ended.event("checkpoint", attempt=0, step=3, tier="s3", checkpoint="late", bytes=1, seconds=1)
    ended.event("notified", attempt=0, how="command")
    stray("local").submitted("local-9", backend="local", pid=1, host="elsewhere")
    for run in (cancelled, ended):
        age(run)
    assert tend(capsys) == []
    assert slurm.calls() == []


@pytest.mark.parametrize(
    ("state", "cause", "did"),
    [
        (None, "node failure", "submitted"),
        ("NODE_FAIL", "node failure", "submitted"),
        ("TIMEOUT", "time limit", "submitted"),
        ("FAILED", "unknown", "submitted"),
        ("OUT_OF_MEMORY", "out of memory", "ended"),
    ],
)
def test_an_attempt_that_died_without_a_word_gets_its_end(stray, slurm, capsys, state, cause, did) -> None:
    run = stray()
    run.event("checkpoint", attempt=0, step=40, tier="shared", checkpoint="a", bytes=1, seconds=1).beat(
        0, step=55, ago=90
    )
    age(run)
    if state:
        slurm.has("7", state, run.folder)
    (deed,) = tend(capsys)
    assert (deed["did"], deed["cause"]) == (did, cause)
    end = end_of(run)
    assert (end["attempt"], end["by"], end["step"], end["durable"]) == (0, "tend", 55, 40)
    assert end["next"] == ("submit" if did == "submitted" else None)


def test_a_rank_that_is_still_heard_of_is_alive(stray, slurm, capsys) -> None:
    run = stray()
    age(run, 1000)
    run.beat(0, step=3)
    assert tend(capsys) == []
    slurm.has("7", "NODE_FAIL", run.folder, ended=30)
    cache.place("queue").unlink()
    assert tend(capsys) == []
    slurm.jobs.write_text("")
    slurm.has("7", "NODE_FAIL", run.folder, ended=900)  # its node was cut off, and Slurm has given it up
    cache.place("queue").unlink()
    assert [deed["did"] for deed in tend(capsys)] == ["submitted"]


@pytest.mark.parametrize(
    ("line", "cause"),
    [(" DUE TO PREEMPTION", "preemption"), (" DUE TO TIME LIMIT", "time limit"), ("", "cancelled")],
)
def test_the_jobs_log_tells_the_cause(stray, slurm, capsys, line: str, cause: str) -> None:
    run = stray()
    age(run)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 60))
    run.folder.job_log("7").write_text(f"slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT {stamp}{line} ***\n")
    (deed,) = tend(capsys)
    assert (deed["cause"], deed["did"]) == (cause, "ended" if cause == "cancelled" else "submitted")


def test_a_rank_that_beats_every_90_seconds_is_not_taken_for_dead(stray, slurm, capsys) -> None:
    named = stray("one").beat(0, ago=100, interval=90.0)
    configured = stray("two", config="monitor: {heartbeat: 90s}\n").beat(0, ago=100)  # of an earlier version
    for run in (named, configured):
        age(run)
    assert tend(capsys) == []
    named.beat(0, ago=310, interval=90.0)
    configured.beat(0, ago=310)
    assert [deed["cause"] for deed in tend(capsys)] == ["node failure", "node failure"]


def test_what_the_lookout_found_is_the_cause(stray, slurm, capsys) -> None:
    run = stray().beat(0, ago=90)
    run.folder.hang(0).write_text('{"rank": 1, "node": "node2", "seconds": 300}')
    age(run)
    (deed,) = tend(capsys)
    assert deed["cause"] == "hang"
    assert "rank 1 on node2 stopped first" in end_of(run)["error"]


def test_ranks_that_all_finished_have_finished_although_the_verdict_is_missing(stray, slurm, capsys) -> None:
    run = stray()
    for rank in (0, 1):
        run.beat(0, rank, outcome={"outcome": "finished", "time": 1.0, "exit_code": 0})
    age(run)
    assert [deed["did"] for deed in tend(capsys)] == ["ended"]
    assert (end_of(run)["outcome"], end_of(run)["cause"]) == ("finished", "finished")


@pytest.mark.parametrize(
    ("line", "cause", "did"),
    [
        ("slurmopt: rank 0 was killed by SIGKILL (out of memory?)", "killed", "submitted"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.", "out of memory", "ended"),
    ],
)
def test_what_slurmopt_asks_itself_is_no_evidence(stray, slurm, capsys, line: str, cause: str, did: str) -> None:
    run = stray()
    killed = outcome_of(-signal.SIGKILL, ["python"], run.folder)
    assert "memory" in str(killed.error)
    for rank in (0, 1):
        run.beat(0, rank, outcome=killed.as_dict())
    run.folder.job_log("7").write_text(f"{line}\n")
    age(run)
    (deed,) = tend(capsys)
    assert (deed["cause"], deed["did"]) == (cause, did)


def test_the_budgets_of_the_runs_own_config_decide(stray, slurm, capsys) -> None:
    run = stray(config="restart:\n  budgets:\n    node_failure: 0\n")
    age(run)
    (deed,) = tend(capsys)
    assert (deed["did"], deed["reason"]) == ("ended", "restart.budgets.node_failure is 0")


def test_a_job_that_never_begins_is_not_submitted_for_ever(stray, slurm, capsys) -> None:
    run = stray(attempt=False)
    age(run)
    slurm.has("7", "FAILED", run.folder)
    did = []
    for _ in range(4):
        did += [deed["did"] for deed in tend(capsys)]
        age(run)
        slurm.has("100", "FAILED", run.folder)
        cache.place("queue").unlink(missing_ok=True)
    assert did == ["submitted", "ended"]
    assert "no progress" in end_of(run)["reason"]
    assert run.folder.attempts() == [0, 1]
    assert [event["attempt"] for event in events.read(run.folder.events) if event["event"] == "end"] == [0, 1]


def test_a_waiting_job_that_is_gone_may_have_been_cancelled(stray, slurm, capsys) -> None:
    run = stray(attempt=False)
    age(run)
    (deed,) = tend(capsys)
    assert deed["did"] == "ended"
    assert "whether it was cancelled" in deed["reason"]


def test_accounting_is_asked_once_for_all_that_squeue_has_forgotten(stray, slurm, capsys) -> None:
    one, two, three = stray("one"), stray("two", attempt=False), stray("three")
    for run in (one, two, three):
        age(run)
    other = RunFolder(Path("/elsewhere"))
    for run, job in ((two, "8"), (three, "9")):
        text = run.folder.events.read_text()
        run.folder.events.write_text(text.replace('"job": "7"', f'"job": "{job}"'))
    slurm.accounts(("7", "TIMEOUT", one.folder), ("8", "CANCELLED by 1000", two.folder), ("9", "CANCELLED by 0", other))
    did = {deed["id"]: (deed["did"], deed["cause"]) for deed in tend(capsys)}
    assert did == {
        "one": ("submitted", "time limit"),
        "two": ("cancelled", None),
        "three": ("submitted", "node failure"),  # the number is another run's by now
    }
    assert len(slurm.calls("sacct")) == 2  # the shared answer of squeue, and the fresh one before anything is done


def test_another_clusters_run_is_not_brought_back_here(stray, slurm, capsys) -> None:
    run = stray()
    text = run.folder.events.read_text()
    run.folder.events.write_text(text.replace('"event": "submitted"', '"event": "submitted", "cluster": "far"'))
    age(run)
    assert main(["tend"]) == 1
    assert "its job 7 is one of cluster far" in capsys.readouterr().err
    assert slurm.calls("sbatch") == []


def test_one_that_slurm_refuses_does_not_keep_the_others(stray, slurm, capsys) -> None:
    broken, run = stray("broken", config="restart: {no_such: 1}\n"), stray("run")
    for one in (broken, run):
        age(one.end("killed", cause="preemption", next="submit"))
    assert main(["tend", "--json"]) == 1
    did = {deed["id"]: deed for deed in data_of(capsys.readouterr().out)}
    assert did["run"]["did"] == "submitted"
    assert did["broken"]["did"] == "failed"
    assert "no_such" in did["broken"]["error"]


@pytest.mark.parametrize("config", ["a: !!bool maybe\n", "a: [\n", "restart: {budgets: 3}\n", "\0", "a: !!int ''\n"])
def test_one_whose_config_is_damaged_does_not_keep_the_others(stray, slurm, capsys, config: str) -> None:
    bad, good = stray("z-bad", config=config), stray("a-good")
    for run in (bad, good):
        age(run)
    assert main(["tend", "--json"]) == 1
    output = capsys.readouterr()
    assert [(deed["id"], deed["did"]) for deed in data_of(output.out)] == [
        ("z-bad", "failed"),
        ("a-good", "submitted"),
    ]
    assert "Traceback" not in output.err


def test_a_submission_that_slurm_refused_is_tried_again(stray, slurm, capsys) -> None:
    run = stray().end("killed", cause="preemption", next="submit")
    age(run)
    refused = slurm.jobs.with_name("jobs.refused")
    refused.touch()
    assert main(["tend"]) == 1
    assert "mine/one: not brought back: sbatch: QOSMaxSubmitJobPerUserLimit" in capsys.readouterr().err
    refused.unlink()
    age(run)
    assert [deed["did"] for deed in tend(capsys)] == ["submitted"]


def test_nodes_that_failed_are_left_out_for_as_long_as_that_holds(stray, slurm, capsys) -> None:
    run = stray(config="resources: {exclude: node9}\n")
    run.event("node-excluded", attempt=0, nodes="node3", until=time.time() + 999, reason="")
    run.event("node-excluded", attempt=0, nodes="node4", until=time.time() - 9, reason="")
    age(run.end("infrastructure", cause="infrastructure", next="submit"))
    tend(capsys)
    (call,) = slurm.calls("sbatch")
    assert "--exclude=node9,node3 " in call


def test_tends_at_the_same_moment_submit_one_job(stray, slurm) -> None:
    run = stray().end("killed", cause="preemption", next="submit")
    age(run)
    slurm.jobs.with_name("jobs.slow").touch()
    tends = [
        subprocess.Popen([sys.executable, "-m", "slurmopt", "tend"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    said = [one.communicate(timeout=120) for one in tends]
    assert [one.returncode for one in tends] == [0, 0, 0], said
    assert len(slurm.calls("sbatch")) == 1


def test_a_run_that_another_is_submitting_is_left_to_it(stray, slurm, capsys) -> None:
    run = stray().end("killed", cause="preemption", next="submit")
    age(run)
    with run_lock(run.folder):
        assert tend(capsys) == []
    assert [deed["did"] for deed in tend(capsys)] == ["submitted"]


def test_the_claim_of_a_launch_that_was_killed_is_removed(stray, slurm, capsys) -> None:
    """The run waits in the queue, and nothing else is to be done."""
    run = stray()
    slurm.has("7", "PENDING", run.folder)
    with run_lock(run.folder):
        assert tend(capsys) == []
        claim = os.readlink(run.folder.submitter)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    os.symlink(json.dumps({**json.loads(claim), "pid": dead.pid}), run.folder.submitter)
    assert main(["tend", "--dry-run"]) == 0
    assert os.path.lexists(run.folder.submitter)
    assert tend(capsys) == []
    assert not os.path.lexists(run.folder.submitter)


def test_what_happened_while_slurm_was_asked_is_seen(stray, slurm, capsys) -> None:
    run = stray().end("killed", cause="preemption", next="submit")
    age(run)
    line = json.dumps({"time": time.time(), "event": "submitted", "token": "t8", "backend": "sbatch", "job": "8"})
    slurm.jobs.with_name("jobs.meanwhile").write_text(f"{line}\n")
    slurm.jobs.with_name("jobs.journal").write_text(f"{run.folder.events}\n")  # at the second question
    assert tend(capsys) == []
    assert slurm.calls("sbatch") == []


def test_from_inside_the_job_it_waits_for_that_job(stray, slurm, capsys) -> None:
    run = stray().end("killed", cause="time limit", next="requeue")
    assert main(["tend", "--from-job", "7", str(run.folder.path)]) == 0
    (call,) = slurm.calls("sbatch")
    assert "--dependency=afterany:7 " in call
    assert "submitted again as job 100" in capsys.readouterr().err
    assert main(["tend", "--from-job", "7", str(run.folder.path)]) == 0
    assert len(slurm.calls("sbatch")) == 1


def test_from_inside_a_job_that_cannot_submit_it_says_who_will(stray, slurm, capsys) -> None:
    run = stray().end("killed", cause="time limit", next="submit")
    slurm.jobs.with_name("jobs.refused").touch()
    assert main(["tend", "--from-job", "7", str(run.folder.path)]) == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "`slurmopt tend` on a login node does it" in said


def test_from_inside_a_job_that_has_ended_nothing_is_submitted(stray, slurm) -> None:
    run = stray().end("user error", cause="user error", next=None)
    assert main(["tend", "--from-job", "7", str(run.folder.path)]) == 0
    assert slurm.calls() == []


def test_the_owner_is_told_of_what_tend_ends_and_brings_back(stray, slurm, capsys) -> None:
    config = "notify:\n  when: [failed, killed, requeued]\n  command: [bash, -c, 'echo $SLURMOPT_TEXT >> told']\n"
    back, over = stray("back", config), stray("over", config + "restart: {budgets: {node_failure: 0}}\n")
    for run in (back, over):
        age(run)
    tend(capsys)
    assert (back.folder.path / "told").read_text().startswith("mine/back will come back (node failure), attempt 0: ")
    assert (over.folder.path / "told").read_text().startswith("mine/over failed (node failure), attempt 0: ")
    assert [told(run)[-1] for run in (back, over)] == ["notified", "notified"]


def test_the_end_of_its_journal_tells_that_a_run_has_ended(stray, slurm) -> None:
    ended = stray("ended").end("user error", cause="user error", next=None).event("checkpoint", attempt=0, step=1)
    older = stray("older").end("killed", cause="node failure", next=None, by="next attempt")
    back = stray("back").end("killed", cause="preemption", next="slurm")
    resumed = stray("resumed").event("cancel", job="7").submitted("8")
    assert [has_ended(run.folder) for run in (ended, older, back, resumed)] == [True, False, False, False]


def test_watching_asks_slurm_nothing_while_no_run_is_alive(stray, slurm) -> None:
    run = stray().end("finished", cause="finished", next=None)
    argv = [sys.executable, "-m", "slurmopt", "tend", "--watch", "1s"]
    watch = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert watch.stdout is not None
        age(run)
        late = stray("late").end("killed", cause="preemption", next="submit")
        age(late)
        assert watch.stdout.readline() == "mine/late: submitted again as job 100 (attempt 0: preemption)\n"
    finally:
        watch.send_signal(signal.SIGINT)
        watch.wait(30)
    assert watch.returncode == 130


def test_bad_words_are_told(stray, capsys) -> None:
    assert main(["tend", "--watch", "often"]) == 2
    assert "--watch: not a time: 'often'" in capsys.readouterr().err


@pytest.mark.parametrize("requeue", ["0", "1"])
def test_a_site_that_takes_requeue_away_is_told_at_launch(slurm, capsys, monkeypatch, tmp_path, requeue: str) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    cache.write("facts", {"cluster": "mini", "requeue_in_doubt": True}, time.time())
    slurm.has("100", "PENDING", RunFolder(tmp_path))
    slurm.jobs.write_text(slurm.jobs.read_text().replace("|1\n", f"|{requeue}\n"))
    words = ["task.command=[true]", "launch.check=false", "launch.json=true"]
    assert main(["launch", *words]) == 0
    said = capsys.readouterr().err
    assert ("this site does not requeue jobs: job 100" in said) == (requeue == "0")
    assert (f"-m slurmopt tend --folder {tmp_path}/runs" in said) == (requeue == "0")
