"""`slurmopt logs`: every byte that the ranks wrote, and the first failure."""

from __future__ import annotations

import io
import json
import threading
import time

import pytest

from slurmopt.cli import main
from slurmopt.run_folder.outcome import Outcome
from slurmopt.runs.logs.follow import follow, stream


def printed(capsys, *words: str) -> str:
    assert main(["logs", *words]) == 0
    return capsys.readouterr().out


@pytest.fixture
def ended(make_run):
    made = make_run().submitted().attempt(0, rank_0="first try\n", rank_1="first of 1\n").end("requeue")
    made.event("requeue", attempt=0, job="7")
    return made.attempt(1, rank_0="zero\nlast", rank_1="one\n").end("finished", 1)


def test_rank_and_attempt(ended, capsys) -> None:
    assert printed(capsys) == "zero\nlast"
    assert printed(capsys, "--rank", "1") == "one\n"
    assert printed(capsys, "--attempt", "0", "--rank", "1") == "first of 1\n"
    assert printed(capsys, "--rank", "all") == "[rank 0] zero\n[rank 0] last\n[rank 1] one\n"
    assert printed(capsys, "--follow") == "zero\nlast"


@pytest.mark.parametrize("words", [["--rank", "5"], ["--attempt", "9"], ["--attempt", "0", "--follow"]])
def test_what_is_not_there_names_what_is(ended, capsys, words) -> None:
    assert main(["logs", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("word", ["-1", "first", "1e3", "٣"])
def test_a_rank_that_is_no_number(ended, capsys, word) -> None:
    assert main(["logs", "--rank", word]) == 2
    error = capsys.readouterr().err
    assert error.startswith("slurmopt: error: logs: argument --rank")
    assert len(error.splitlines()) == 1


def test_bytes_of_any_kind(make_run, capsys) -> None:
    made = make_run().submitted().attempt(rank_0="").end("finished")
    made.folder.rank_log(0, 0).write_bytes(b"\x1b[31mred\x1b[0m \xff\xfe \xe2\x82")
    assert printed(capsys) == "\x1b[31mred\x1b[0m �� �"


def test_errors_show_the_rank_that_failed_first(make_run, capsys) -> None:
    made = make_run().submitted().attempt(rank_0="\n".join(f"line {n}" for n in range(50)), rank_1="rank one\n")
    trace = 'Traceback (most recent call last):\n  File "train.py", line 3\nValueError: no\n'
    late = Outcome("infrastructure", time.time(), 69, "Connection closed by peer").as_dict()
    early = Outcome("user error", time.time() - 5, 1, "ValueError: no", trace).as_dict()
    made.beat(rank=0, outcome=late).beat(rank=1, outcome=early)
    text = printed(capsys, "--errors")
    assert text.splitlines()[:2] == [
        "mine/20261121-120000-aaaa, attempt 0: ValueError: no",
        "  where      train.py:3, rank 1 on node1",
    ]
    assert trace.rstrip() in text
    assert "rank one" in text
    assert "line 49" not in text


def test_errors_follow_the_verdict_where_there_is_one(make_run, capsys) -> None:
    made = make_run().submitted().attempt(rank_0="a\n", rank_1="b\n")
    made.beat(rank=0, outcome=Outcome("user error", time.time(), 1, "ValueError: symptom").as_dict())
    verdict = {"attempt": 0, "outcome": "killed", "rank": 1, "node": "node2", "error": "rank 1 ended without a report"}
    made.folder.result.write_text(json.dumps(verdict))
    made.folder.job_log("7").write_text("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0\n")
    made.end("killed", rank=1, error="rank 1 ended without a report")
    text = printed(capsys, "--errors")
    assert "attempt 0: killed: rank 1 ended without a report\n  where      rank 1 on node2\n" in text
    assert "oom_kill" in text


def test_errors_of_a_run_without_one(ended, capsys) -> None:
    assert "no rank has failed" in printed(capsys, "--errors")


def test_without_a_rank_log_the_jobs_own_is_shown(make_run, capsys) -> None:
    made = make_run().submitted().end("infrastructure", exit_code=69)
    made.folder.job_log("7").write_text("slurmstepd: error: couldn't chdir\n")
    assert printed(capsys) == "slurmstepd: error: couldn't chdir\n"


def test_a_run_without_any_log_says_how_it_is(make_run, capsys) -> None:
    make_run().submitted()
    assert main(["logs"]) == 2
    error = capsys.readouterr().err
    assert "it is pending" in error
    assert "--follow" in error


class Slow(io.StringIO):
    """Output that somebody waits for."""

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 20
        while text not in self.getvalue():
            assert time.monotonic() < deadline, self.getvalue()
            time.sleep(0.02)


@pytest.mark.slow
def test_following_goes_on_over_a_restart_until_the_end(make_run) -> None:
    made = make_run().submitted()
    out, states = Slow(), []
    thread = threading.Thread(target=lambda: states.append(stream(made.folder, out, 0).state), daemon=True)
    thread.start()
    made.attempt(0, rank_0="one\n").beat()
    out.wait_for("one\n")
    with made.folder.rank_log(0, 0).open("a") as log:
        log.write("two\n")
    out.wait_for("two\n")
    made.end("requeue").event("requeue", attempt=0, job="7").attempt(1, rank_0="three\n").beat(1)
    out.wait_for("three\n")
    made.end("finished", 1)
    thread.join(20)
    assert states == ["finished"]
    assert out.getvalue() == "one\ntwo\nthree\n"


def test_the_summary_after_waiting(make_run) -> None:
    made = make_run().submitted().attempt(rank_0="done\n").end("finished")
    made.folder.result.write_text('{"attempt": 0, "outcome": "finished", "result": {"val_loss": 1.5}}')
    out = io.StringIO()
    assert follow(made.folder, out) == 0
    for text in ("done\n", "finished", '{"val_loss": 1.5}', str(made.folder.path)):
        assert text in out.getvalue()
    failed = make_run("failed").submitted().attempt(rank_0="").end("user error", error="ValueError: no")
    out = io.StringIO()
    assert follow(failed.folder, out) == 1
    assert "--errors" in out.getvalue()


def test_an_empty_log_is_told(make_run, capsys) -> None:
    made = make_run().submitted().attempt(rank_0="").end("finished")
    assert main(["logs"]) == 0
    seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("", f"slurmopt: the log of mine/{made.folder.id} is empty\n")
    assert main(["logs", "--rank", "all"]) == 0
    assert "is empty" in capsys.readouterr().err
