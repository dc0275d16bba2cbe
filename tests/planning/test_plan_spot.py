"""`slurmopt plan spot`: traces in files, and what the command says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from planning.in_process import Done, answer_of, slurmopt_plan

from slurmopt.estimates.spot_trace import read
from slurmopt.planning.spot.trace import Trace

JOB = ("--work", "2h", "--save", "1min", "--restart", "5min")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURMOPT_FOLDER", raising=False)


def slurmopt(*words: str) -> Done:
    return slurmopt_plan("spot", *words)


def plan(*words: str) -> dict[str, Any]:
    return answer_of("spot", *words)


def spot_traces(file: Path, data: list[object], gap: float = 300) -> Path:
    """In the form of github.com/skypilot-org/spot-traces."""
    file.write_text(json.dumps({"metadata": {"gap_seconds": gap}, "data": data}))
    return file


def test_counts_are_instances_that_can_be_had(tmp_path: Path) -> None:
    """The README of spot-traces says so; a simulator that reads `not trace[tick]` turns the polarity around."""
    file = spot_traces(tmp_path / "t.json", [*[0] * 7, 5, *[16] * 7, 8, 8, *[0] * 6])
    found = plan(str(file), *JOB, "--nodes", "16")
    assert found["trace"]["available"] == pytest.approx(7 / 23)
    assert (found["trace"]["uptimes"], found["trace"]["mean_up"]) == (1, 7 * 300)
    assert found["trace"]["most"] == 16
    assert plan(str(file), *JOB, "--nodes", "8")["trace"]["available"] == pytest.approx(9 / 23)


def test_both_forms_are_the_same_trace(tmp_path: Path) -> None:
    counts = [2, 2, 0, 1, 2, 2, 2, 0]
    of_json = read(spot_traces(tmp_path / "t.json", list(counts))).trace
    rows = [f"2026-11-24T00:{5 * at:02d}:00Z,a,{count}" for at, count in enumerate(counts)]
    (tmp_path / "t.csv").write_text("\n".join(["Time,zone,Available", *rows]) + "\n\n")
    assert read(tmp_path / "t.csv").trace == of_json
    assert of_json.length == 8 * 300


def test_rows_in_any_order_are_sorted_and_told(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("time,available\n600,1\n0,3\n300,0\n300,0\n")
    found = read(tmp_path / "t.csv")
    assert found.trace == Trace((0.0, 300.0, 600.0), (3, 0, 1), 900.0)
    assert found.notes == ("the rows were not in the order of time, and were sorted",)


def test_no_instance_is_taken_to_be_in_a_gap(tmp_path: Path) -> None:
    rows = [f"{300 * at},2" for at in range(40) if not 10 <= at < 22]
    (tmp_path / "t.csv").write_text("\n".join(["time,available", *rows]))
    found = read(tmp_path / "t.csv")
    at = found.trace.times.index(3000.0)
    assert (found.trace.counts[at - 1], found.trace.counts[at], found.trace.times[at + 1]) == (2, 0, 6600.0)
    assert found.notes == ("the trace has a gap of 1h00m: no instance is taken to be there",)
    of_null = read(spot_traces(tmp_path / "t.json", [2, None, 2, None, None, 2]))
    assert of_null.trace.counts == (2, 0, 2, 0, 0, 2)
    assert of_null.notes == ("the trace has 3 gaps, 15m00s in all: no instance is taken to be there",)
    (tmp_path / "t.csv").write_text("time,available\n0,4\n60,\n120,4\n")
    assert read(tmp_path / "t.csv").trace.counts == (4, 0, 4)


def test_rows_of_changes_hold_until_the_next(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("time,available\n0,4\n9000,0\n9100,4\n50000,1\n50900,0\n51000,4\n")
    found = read(tmp_path / "t.csv")
    assert found.notes == ()
    assert found.trace.counts == (4, 0, 4, 1, 0, 4)


def test_a_trace_of_zeros_and_ones_says_what_one_is_taken_for(tmp_path: Path) -> None:
    found = plan(str(spot_traces(tmp_path / "t.json", [1, 1, 1, 0] * 20, 600)), *JOB)
    assert any("only 0 and 1, which does not show what 1 means: it is read as available (75%" in note
               for note in found["notes"])  # fmt: skip


def test_the_answer_by_hand(tmp_path: Path) -> None:
    """An hour of three instances and half an hour of one, again and again; a save each 25 minutes. Each uptime has 5
    minutes of start, two segments of 26 and three minutes that are lost; the work is 4 segments of 25 and one of 20."""
    file = spot_traces(tmp_path / "t.json", [*[3] * 12, *[1] * 6] * 8)
    found = plan(str(file), *JOB, "--every", "25min", "--nodes", "3", "--spot", "2", "--on-demand", "5")
    (row,) = (row for row in found["rows"] if "asked" in row["roles"])
    assert row["interval"] == 1500
    whole = 2 * 5400 + 300 + 1200 + 60
    assert row["p50"] < whole + 5400, "at most one more uptime than from its very beginning"
    assert whole - 3600 < row["p50"]
    assert row["cost"] == pytest.approx(2 * row["billed_hours"])
    assert row["free_hours"] > 0, "what began within an uptime lives for less than an hour"
    assert found["on_demand"]["seconds"] >= 300 + 7200 + 60
    assert found["on_demand"]["cost"] == pytest.approx(5 * 3 * found["on_demand"]["seconds"] / 3600)
    assert found["formula"]["mtbf"] == 3600
    best = found["rows"][0]
    assert best["roles"][0] == "best"
    assert best["mean"] == min(each["mean"] for each in found["search"] if each["mean"] is not None)
    assert any(each["interval"] == 1500 for each in found["search"])
    again = plan(str(file), *JOB, "--every", "25min", "--nodes", "3", "--spot", "2", "--on-demand", "5")
    assert again == found, "the same answer twice"


def test_the_rule_of_billing_is_named_and_can_be_changed(tmp_path: Path) -> None:
    file = str(spot_traces(tmp_path / "t.json", [*[1] * 8, *[0] * 4] * 30))
    aws, plain = (plan(file, *JOB, "--billing", rule) for rule in ("aws", "seconds"))
    assert aws["rows"][0]["free_hours"] > 0
    assert plain["rows"][0]["free_hours"] == 0
    total = aws["rows"][0]["billed_hours"] + aws["rows"][0]["free_hours"]
    assert total == pytest.approx(plain["rows"][0]["billed_hours"])
    assert any("takes back within its first hour is free" in note for note in aws["notes"])
    assert not any("first hour" in note for note in plain["notes"])


def test_a_trace_that_is_shorter_than_the_work_begins_again(tmp_path: Path) -> None:
    file = spot_traces(tmp_path / "t.json", [*[1] * 10, 0, 0])
    found = plan(str(file), *JOB)
    assert "the trace of 1h00m is shorter than the work: it begins again at its end" in found["notes"]
    assert found["rows"][0]["p50"] > 7200


def test_without_interruptions_there_is_no_formula(tmp_path: Path) -> None:
    found = plan(str(spot_traces(tmp_path / "t.json", [4] * 90)), *JOB)
    assert found["formula"] is None
    assert found["rows"] == [
        {"interval": 7200, "roles": ["best"], "p50": 7560, "p90": 7560, "mean": 7560, "interruptions": 0, "lost": 0,
         "billed_hours": 2.1, "free_hours": 0, "cost": None}
    ]  # fmt: skip


def test_the_text_says_what_to_take(tmp_path: Path) -> None:
    file = spot_traces(tmp_path / "t.json", [*[2] * 40, *[0] * 9] * 9)
    done = slurmopt(str(file), *JOB, "--spot", "1", "--on-demand", "3", "--currency", "EUR", "--nodes", "2")
    assert done.returncode == 0, done.stderr
    assert "2 instances for 82% of it, 9 times; an uptime is 3h20m in the mean" in done.stdout
    assert "the best on this trace" in done.stdout
    assert "for an exponential life with M = 3h20m; replayed" in done.stdout
    assert "% cheaper" in done.stdout
    assert "next      slurmopt launch … checkpoint.every=" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--nodes", "9"), "plan spot: the trace never has 9 instances: the most is 2"),
        (("--restart", "10h"), "plan spot: it never finishes: of no uptime, the longest 3h20m, a save is left over"),
    ],
)
def test_what_never_runs_is_a_no(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    file = spot_traces(tmp_path / "t.json", [*[2] * 40, *[0] * 9] * 9)
    done = slurmopt(str(file), *JOB, *words)
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    data = data_of(slurmopt(str(file), *JOB, *words, "--json").stdout)
    assert all(row["p50"] is None for row in data["rows"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "t: is empty; valid: JSON of spot-traces, or CSV with a header with time and available"),
        (b" \n", "t: is empty"),
        (b"\xff\xfe\x00", "t: is no text; valid: JSON of spot-traces, or CSV"),
        (b"{", "t: is no JSON"),
        (b"[" * 100_000, "t: is no JSON"),
        (b"[1, 2]", "t: has no metadata or no data; valid: metadata.gap_seconds, and data, a list of counts"),
        (b'{"metadata": {}, "data": [1, 2]}', "metadata.gap_seconds: None is not valid; valid: seconds between two"),
        (b'{"metadata": {"gap_seconds": -5}, "data": [1, 2]}', "metadata.gap_seconds: -5 is not valid"),
        (b'{"metadata": {"gap_seconds": 5}, "data": []}', "t: has 0 counts; valid: 2 to 100,000"),
        (b'{"metadata": {"gap_seconds": 5}, "data": [1, -2]}', "data[1]: -2 is not valid; valid: a whole number, 0 to"),
        (b'{"metadata": {"gap_seconds": 5}, "data": [NaN, 2]}', "data[0]: nan is not valid; valid: a whole number"),
        (b'{"metadata": {"gap_seconds": 5}, "data": [0.5, 2]}', "data[0]: 0.5 is not valid"),
        (b'{"metadata": {"gap_seconds": 5}, "data": [true, 2]}', "data[0]: True is not valid"),
        (b'{"metadata": {"gap_seconds": 5}, "data": [1, 1e999]}', "data[1]: inf is not valid"),
        (b'{"metadata": {"gap_seconds": 5}, "data": [1, ' + b"9" * 400 + b"]}", "is not valid"),
        (b"time,preempted\n0,1\n300,0\n", "t: line 1: 'time,preempted' is not valid; valid: a header with time and"),
        (b"0,1\n300,0\n", "t: line 1: '0,1' is not valid; valid: a header with time and available"),
        (b"time,available\n0,1\n", "t: has 1 counts; valid: 2 to 100,000"),
        (b"time,available\n0,1\n0,1\n", "t: has 1 counts"),
        (b"time,available\n0,1\n300,nan\n", "t: line 3: available: nan is not valid; valid: a whole number"),
        (b"time,available\n0,1\n300,-1\n", "t: line 3: available: -1 is not valid"),
        (b"time,available\n0,1\n300,many\x1b[2J\n", "t: line 3: available: many\\x1b[2J is not valid"),
        (b"time,available\n0,1\n2026-01-01T00:00:00,1\n", "t: line 3: time: '2026-01-01T00:00:00' is of another form"),
        (b"time,available,available\n0,1,1\n", "t: line 1: has several columns of a name; valid: "),
        (b"time,available\n0,1\nsoon,1\n", "t: line 3: time: 'soon' is not valid; valid: seconds, or such as 2026-"),
        (b"time,available\n0,1\nnan,1\n", "t: line 3: time: 'nan' is not valid"),
        (b"time,available\n0,1\n300\n", "t: line 3: has 1 of 2 cells"),
        (b"time,available\n0,1\n300,2\n0,5\n", "its time has another count on another line; valid: one count"),
    ],
)
def test_a_trace_that_cannot_be_used_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "t").write_bytes(content)
    done = slurmopt("t", *JOB)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("gone.json", *JOB), "gone.json: no such file or directory"),
        ((".", *JOB), ".: it is a folder, not a regular file"),
        (("t.json",), "the following arguments are required: --work, --save, --restart"),
        (("t.json", *JOB, "--work", "soon"), "plan spot: --work: not a time: 'soon'; valid are minutes"),
        (("t.json", *JOB, "--save", "0"), "plan spot: --save: not a time: '0'; valid are 1 second to ten years"),
        (("t.json", *JOB, "--every", "nan"), "plan spot: --every: not a time: 'nan'"),
        (("t.json", *JOB, "--nodes", "0"), "plan spot: --nodes 0 is not valid; valid: 1 to 100,000"),
        (("t.json", *JOB, "--spot", "nan"), "plan spot: --spot 'nan' is not valid; valid: above 0, up to 1,000,000"),
        (("t.json", *JOB, "--on-demand", "-1"), "plan spot: --on-demand"),
        (
            ("t.json", *JOB, "--currency", "U\x07D"),
            "plan spot: --currency 'U\\x07D' is not valid; valid: a word such as",
        ),
    ],
)
def test_options_that_cannot_be_used_are_one_line(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    spot_traces(tmp_path / "t.json", [2] * 40)
    done = slurmopt(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
