"""`slurmopt plan capacity`: jobs of sacct and of run folders, and what the command says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from json_answer import data_of
from planning.in_process import Done, answer_of, slurmopt_plan

from slurmopt.estimates.job_history import read
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder

HEADER = "JobID|Submit|Start|End|AllocTRES|State"
SACCT = f"""{HEADER}
100|2026-11-02T08:00:00|2026-11-02T09:00:00|2026-11-02T11:00:00|billing=64,cpu=64,gres/gpu:a100=16,gres/gpu=16,mem=1T,node=2|COMPLETED
100.batch|2026-11-02T09:00:00|2026-11-02T09:00:00|2026-11-02T11:00:00|cpu=32,gres/gpu=8,mem=512G,node=1|COMPLETED
100.extern|2026-11-02T09:00:00|2026-11-02T09:00:00|2026-11-02T11:00:00|billing=64,cpu=64,gres/gpu=16,node=2|COMPLETED
100.0|2026-11-02T09:00:00|2026-11-02T09:00:00|2026-11-02T11:00:00|cpu=64,gres/gpu=16,node=2|COMPLETED
101_0|2026-11-02T09:00:00|2026-11-02T09:30:00|2026-11-02T10:30:00|cpu=8,gres/gpu:a100=4,node=1|FAILED
101_1|2026-11-02T09:00:00|2026-11-02T10:00:00|2026-11-02T10:15:00|cpu=8,gres/gpu:a100=4,node=1|CANCELLED by 1000
101_[2-9%1]|2026-11-02T09:00:00|Unknown|Unknown||PENDING
102|2026-11-02T09:00:00|None|2026-11-02T09:10:00||CANCELLED by 1000
103|2026-11-02T09:00:00|2026-11-02T09:00:00|2026-11-02T12:00:00|cpu=8,mem=8G,node=1|COMPLETED
104+0|2026-11-02T10:00:00|2026-11-02T10:00:00|Unknown|cpu=8,gres/gpu=2,node=1|RUNNING
105|2026-11-02T10:00:00|2026-11-02T11:00:00|Unknown|cpu=8,gres/gpu=2,node=1|NODE_FAIL
106|2026-11-02T10:00:00|2026-11-02T11:00:00|2026-11-02T10:00:00|cpu=8,gres/gpu=2,node=1|COMPLETED
107|yesterday|2026-11-02T11:00:00|2026-11-02T12:00:00|cpu=8,gres/gpu=2,node=1|COMPLETED
108|Unknown|2026-11-02T11:00:00|2026-11-02T12:00:00|cpu=8,gres/gpu=1,node=1|TIMEOUT
a line of somebody
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURMOPT_FOLDER", raising=False)


def slurmopt(*words: str) -> Done:
    return slurmopt_plan("capacity", *words)


def plan(*words: str) -> dict[str, Any]:
    return answer_of("capacity", *words)


def test_the_rows_of_sacct(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text(SACCT)
    found = read(tmp_path / "jobs")
    hours = sorted((job.gpus, job.seconds / 3600, job.wait / 3600) for job in found.jobs)
    assert hours == [(1, 1, 0), (2, 2, 0), (4, 0.25, 1), (4, 1, 0.5), (16, 2, 1)]
    assert found.gpus_per_node == 8, "16 on 2 nodes, counted once though they are typed too"
    assert found.notes == (
        "left out: 3 steps of jobs, 2 jobs that never started, 4 jobs whose times or TRES cannot be read, "
        "1 jobs without GPUs",
        "1 jobs still run: they are counted until the newest time in the file",
    )


def test_columns_may_come_in_another_order_and_without_a_header(tmp_path: Path) -> None:
    lines = [line for line in SACCT.splitlines()[1:] if line.count("|") == 5]
    (tmp_path / "plain").write_text("\n".join(lines))
    other = ["|".join(["x", *reversed(line.split("|"))]) for line in (HEADER, *lines)]
    (tmp_path / "other").write_text("\n".join(other))
    (tmp_path / "parsable").write_text("\n".join(f"{line}|" for line in (HEADER, *lines, lines[0])))
    assert read(tmp_path / "plain").jobs == read(tmp_path / "other").jobs == read(tmp_path / "parsable").jobs


def test_times_of_the_epoch_are_those_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs").write_text(f"{HEADER}\n1|1793600000|1793606400|1793610000|gres/gpu=3|COMPLETED\n")
    argv = [sys.executable, "-m", "slurmopt", "plan", "capacity", "--jobs", "jobs", "--json"]
    hours = []
    for zone in ("UTC", "UTC-2"):
        monkeypatch.setenv("TZ", zone)
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=180)
        week = data_of(done.stdout)["week"]
        hours.append([24 * day + hour for day in range(7) for hour in range(24) if week[day][hour]])
    assert hours[0]
    assert hours[1] == [hour + 2 for hour in hours[0]]


def of_a_day(job: int, day: int, hours: tuple[int, int, int], gpus: int) -> str:
    """A job: the hours of its submission, start and end, of a day in November."""
    times = (f"2026-11-{day + hour // 24:02d}T{hour % 24:02d}:00:00" for hour in hours)
    return f"{job}|{'|'.join(times)}|gres/gpu={gpus},node={gpus // 8}|COMPLETED"


JOBS = "\n".join(
    [
        HEADER,
        *(of_a_day(day, day, (0, 0, 24), 8) for day in range(2, 16)),
        *(of_a_day(100 + day, day, (9, 10, 16), 16) for day in range(2, 16)),
    ]
)
"""Two weeks: a node all the time, and two more from 10 to 16."""


def test_the_answer_by_hand(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text(JOBS)
    found = plan("--jobs", "jobs", "--committed", "1", "--on-demand", "3", "--spot", "1.1", "--currency", "USD")
    assert found["history"] == {
        "jobs": 28, "hours": 336, "gpu_hours": 14 * (24 * 8 + 6 * 16), "mean": 12.0, "most": 24, "gpus_per_node": 8,
    }  # fmt: skip
    assert found["commitment"] == {"share": pytest.approx(2 / 3), "needed": 8.0, "gpus": 8, "nodes": 1}
    bills = {each["what"]: each for each in found["bills"]}
    assert bills["nothing"]["total"] == 3 * 4032
    assert bills["on demand"]["total"] == 336 * 8 + 3 * 14 * 6 * 16
    assert bills["on demand"]["amortised"] == 1.0
    assert bills["spot"]["committed"] == 8, "there the rest is needed in a quarter of the hours alone"
    assert bills["everything"]["total"] == 336 * 24
    assert bills["everything"]["amortised"] == pytest.approx(336 * 24 / 4032)
    assert bills["everything"]["utilisation"] == pytest.approx(0.5)
    assert bills["on demand"]["average"] == pytest.approx(bills["on demand"]["total"] / 4032)
    assert found["marginal"] == {"inside": 0.0, "beyond": 3.0}
    waits = {each["what"]: each for each in found["waits"]}
    assert (waits["recorded"]["mean"], waits["recorded"]["p90"]) == (1800, 3600)
    assert (waits["committed"]["gpus"], waits["committed"]["never"], waits["committed"]["mean"]) == (8, 14, 0)
    assert (waits["peak"]["gpus"], waits["peak"]["mean"]) == (24, 0)
    assert found["week"][0] == [*[8.0] * 10, *[24.0] * 6, *[8.0] * 8]
    assert found["currency"] == "USD"


def test_a_dear_rest_commits_to_more(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text(JOBS)
    found = plan("--jobs", "jobs", "--committed", "1", "--on-demand", "5")
    assert found["commitment"]["gpus"] == 24, "a quarter of the hours needs 24, and 1 - 1/5 is more than three quarters"
    assert plan("--jobs", "jobs", "--committed", "5", "--on-demand", "5")["commitment"]["gpus"] == 0


def test_the_text(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text(JOBS)
    done = slurmopt("--jobs", "jobs", "--committed", "1", "--on-demand", "3", "--currency", "USD")
    assert done.returncode == 0, done.stderr
    assert "28 jobs in 14d00h: 4,032 GPU-hours, 12 GPUs in the mean, 24 at most; 8 GPUs a node" in done.stdout
    assert "commit    to 8 GPUs, 1 node: q = 1 - 1/3 = 67% of the hours need at most 8" in done.stdout
    assert "costs 0 more, and 1.00 USD with its part of the fee (100% used); beyond it 3.00 USD" in done.stdout
    monday = next(line for line in done.stdout.splitlines() if line.startswith("Mon"))
    assert monday.split()[1:] == ["1"] * 10 + ["3"] * 6 + ["1"] * 8
    done = slurmopt("--jobs", "jobs")
    assert done.returncode == 0, done.stderr
    assert "next      slurmopt plan capacity --committed PRICE --on-demand PRICE tells what to commit to" in done.stdout
    dear = slurmopt("--jobs", "jobs", "--committed", "3", "--on-demand", "3")
    assert "commit    to nothing: a committed GPU-hour costs no less than one on demand" in dear.stdout


def test_only_the_newest_days_count(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text(JOBS)
    found = plan("--jobs", "jobs", "--days", "2")
    assert found["history"]["hours"] == 48
    assert found["history"]["gpu_hours"] == 2 * (24 * 8 + 6 * 16)
    assert any("24 jobs ended before the time that is looked at" in note for note in found["notes"])
    assert any("only 2d00h of history" in note for note in found["notes"])


def test_ones_own_runs_are_jobs(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "runs" / "past" / "20261101-000001-abcd")
    run.make()
    config = {"task": {"command": ["true"]}, "resources": {"nodes": 2, "gpus_per_node": 4}}
    run.config.write_text(yaml.safe_dump(config))
    for attempt, start in enumerate((1793600000.0, 1793610000.0)):
        if attempt == 0:
            events.append(run.events, event="submitted", job="7", time=start - 1800)
        events.append(run.events, event="attempt", attempt=attempt, job="7", nodes="n[1-2]", gpus=4, time=start)
        events.append(run.events, event="end", attempt=attempt, cause="finished", outcome="finished", time=start + 7200)
    found = plan()
    assert found["history"]["jobs"] == 2
    assert found["history"]["gpu_hours"] == pytest.approx(2 * 2 * 8)
    assert found["history"]["gpus_per_node"] == 4
    assert found["history"]["most"] == 8
    assert found["waits"][0]["mean"] == pytest.approx((1800 + 2800) / 2)


FILE = """currency: EUR
prices:
- {gpu: H100, per_hour: 4, date: 2026-01-01, source: list}
- {gpu: H100, per_hour: 1.5, date: 2026-01-01, source: contract, kind: reserved, terms: 1 year}
- {gpu: H100, per_hour: 1, date: 2026-01-01, source: contract, kind: savings-plan, terms: 3 years}
- {gpu: H200, per_hour: 5, date: 2026-01-01, source: list}
"""


def test_prices_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs").write_text(SACCT)
    (tmp_path / "prices.yaml").write_text(FILE)
    monkeypatch.setenv("SLURMOPT_PRICES", str(tmp_path / "prices.yaml"))
    found = plan("--jobs", "jobs", "--gpu", "h100")
    assert found["bills"] == plan("--jobs", "jobs", "--committed", "1", "--on-demand", "4")["bills"]
    assert found["currency"] == "EUR"
    assert "prices: savings-plan of 2026-01-01: contract; on-demand of 2026-01-01: list" in found["notes"]
    for words, said in (
        (("h200",), "--gpu h200: the file of prices has none committed that is valid today; valid: rows of the kinds"),
        (("gtx",), "plan capacity: --gpu: 'gtx' is not known; valid: v100-16gb"),
        (("h100", "--spot", "1"), "plan capacity: --gpu has the prices of the file; valid: it alone, or prices"),
    ):
        done = slurmopt("--jobs", "jobs", "--gpu", *words)
        assert done.returncode == 2
        assert said in done.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "jobs: is empty; valid: the output of sacct -P -o JobID,Submit,Start,End,AllocTRES,State"),
        (b"\xff\x00", "jobs: is no text; valid: the output of sacct"),
        (b"hello\x1b[2J\n", "jobs: line 1: 'hello\\x1b[2J' is no job; valid: the output of sacct -P"),
        (b"JobID|Start|End|State\n1|2|3|COMPLETED\n", "jobs: has no Submit, AllocTRES; valid: the output of sacct"),
        (f"{HEADER}\n".encode(), "jobs: no job in it used a GPU (0 rows); valid: the output of sacct"),
        (
            f"{HEADER}\n1|2026-11-02T09:00:00|2026-11-02T09:00:00|2026-11-02T12:00:00|cpu=8|COMPLETED\n".encode(),
            "jobs: no job in it used a GPU (1 jobs without GPUs); valid:",
        ),
        (
            f"{HEADER}\n1|1|2|{'9' * 400}|gres/gpu=1|COMPLETED\n1|1|2|3|gres/gpu=nan|COMPLETED\n".encode(),
            "jobs: no job in it used a GPU (2 jobs whose times or TRES cannot be read)",
        ),
    ],
)
def test_a_history_that_cannot_be_used_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "jobs").write_bytes(content)
    done = slurmopt("--jobs", "jobs")
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "plan capacity: no run in runs (0 runs) used a GPU; valid: --jobs with the output of sacct"),
        (("--jobs", "gone"), "gone: no such file or directory"),
        (("--committed", "1"), "plan capacity: one price alone tells nothing; valid: --committed and --on-demand"),
        (("--spot", "1"), "plan capacity: one price alone tells nothing"),
        (("--committed", "0", "--on-demand", "1"), "plan capacity: --committed '0' is not valid; valid: above 0"),
        (("--days", "0"), "plan capacity: --days 0 is not valid; valid: 1 to 3,660"),
        (("--gpus-per-node", "-8"), "plan capacity: --gpus-per-node -8 is not valid; valid: 1 to 1,024"),
    ],
)
def test_options_of_capacity_that_cannot_be_used_are_one_line(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = slurmopt(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
