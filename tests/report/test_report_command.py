"""`slurmopt report` and `slurmopt compare` on real runs of this machine, and the page that the end of a run writes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from private_cluster import wait_until

TRAIN = """
import time, slurmopt

def main(config):
    for step in range(1, config['steps'] + 1):
        time.sleep(config['pause'])
        slurmopt.progress(step, config['steps'], tokens=100, loss=1.0 / step)
"""
CONFIG = "# @package _global_\ntask: {_target_: train.main}\nresources: {time: 10}\nsteps: 40\npause: 0.05\n"


def slurmopt(*words: str, folder: Path, status: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "slurmopt", *words], cwd=folder, env={**os.environ, **variables}, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


def report_of(folder: Path, *words: str) -> dict[str, Any]:
    return dict(data_of(slurmopt("report", *words, "--json", folder=folder).stdout))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of the same experiment that differ in their pace."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "conf" / "experiment").mkdir(parents=True)
    (folder / "conf" / "experiment" / "mine.yaml").write_text(CONFIG)
    (folder / "train.py").write_text(TRAIN)
    options = ("launch.backend=local", "launch.wait=true", "metrics.tensorboard.folder=auto")
    launch = ("launch", "+experiment=mine", *options)
    slurmopt(*launch, "launch.id=slow", folder=folder)
    slurmopt(*launch, "launch.id=quick", "pause=0.02", folder=folder)
    return folder


def test_the_ledger_of_a_real_run_sums_to_what_it_had(runs: Path) -> None:
    report = report_of(runs, "mine/slow")
    assert report["state"] == "finished"
    assert report["step"] == report["total_steps"] == 40
    assert sum(share["seconds"] for share in report["shares"]) == pytest.approx(report["device_seconds"], abs=0.01)
    by_bucket = {share["bucket"]: share["seconds"] / report["devices"] for share in report["shares"]}
    assert by_bucket["compute"] > 1.0, "forty steps of 50 ms"
    assert report["rates"]["tokens"] == pytest.approx(100 * report["step_rate"], rel=0.2)


def test_the_end_of_a_run_writes_a_page_and_status_names_it(runs: Path) -> None:
    page = runs / "runs" / "mine" / "slow" / "report.html"
    html = page.read_text(encoding="utf-8")
    assert "mine/slow: finished" in html
    assert not re.search(r"(?:src|href)=\"(?!data:)", html), "it needs nothing else"
    assert f"report     {page}" in slurmopt("status", "mine/slow", folder=runs).stdout
    assert "Traceback" not in (next((page.parent / "logs").glob("job-*.log"))).read_text()


def test_nothing_in_a_run_folder_is_open_to_other_users(runs: Path) -> None:
    run = runs / "runs" / "mine" / "slow"
    paths = [run, *run.rglob("*")]
    assert {"series", "tensorboard", "heartbeat", "logs"} <= {path.name for path in paths}
    assert [str(path) for path in paths if path.stat().st_mode & 0o027] == []
    folders = [path for path in paths if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}, "as docs/security.md says"


def test_text_in_a_pipe_has_no_escapes(runs: Path) -> None:
    text = slurmopt("report", "mine/slow", folder=runs).stdout
    assert "\x1b" not in text
    assert text.index("mine/slow") < text.index("Where ") < text.index("Attempts")


def test_html_is_written_where_it_is_asked_for(runs: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    slurmopt("report", "mine/slow", "--html", str(target), folder=runs)
    assert target.stat().st_size > 10_000
    assert target.stat().st_mode & 0o077 == 0, "private, as all that is written"
    assert slurmopt("report", "mine/slow", "--html", "-", folder=runs).stdout.startswith("<!doctype html>")


def test_the_page_is_opened_where_there_is_a_display(runs: Path, tmp_path: Path) -> None:
    browser, target = tmp_path / "browser", tmp_path / "a page.html"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    words = ("report", "mine/slow", "--html", str(target), "--open")
    said = slurmopt(*words, folder=runs, BROWSER=str(browser), DISPLAY="", WAYLAND_DISPLAY="").stderr
    assert f"{target}' ." in said, "the words of scp"
    assert not (tmp_path / "opened").exists()
    assert slurmopt(*words, folder=runs, BROWSER=str(browser), DISPLAY=":0").stderr == ""
    wait_until(lambda: (tmp_path / "opened").exists() and (tmp_path / "opened").read_text(), 30, "the browser")
    assert (tmp_path / "opened").read_text() == target.as_uri()


def test_all_runs_of_a_user(runs: Path) -> None:
    report = report_of(runs, "--user", "--since", "30d")
    assert report["runs"] == 2
    assert report["completion_rate"] == 1.0
    assert [group["name"] for group in report["groups"]] == ["mine"]
    each = [report_of(runs, f"mine/{run}")["device_seconds"] for run in ("slow", "quick")]
    assert report["device_seconds"] == pytest.approx(sum(each), abs=0.1)
    assert report_of(runs, "--user", "--since", "30d")["first_wait"]["count"] == 2


def test_compare_tells_what_differs_and_how_much(runs: Path) -> None:
    compared = data_of(slurmopt("compare", "mine/slow", "mine/quick", "--json", folder=runs).stdout)
    assert compared["config"] == {"pause": [0.05, 0.02]}
    assert compared["ratios"][0][0] == 1.0
    assert compared["ratios"][1][0] > 1.5
    text = slurmopt("compare", "mine/slow@0", "mine/quick", folder=runs).stdout
    assert "mine/slow@0" in text
    assert re.search(r"pause +0\.05 +0\.02", text)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("report", "nothing"), "no run 'nothing'"),
        (("report", "mine/slow", "--user"), "name a run, or use --user"),
        (("report", "--since", "3d"), "--since belongs to --user"),
        (("report", "--user", "--since", "soon"), "not a time: 'soon'"),
        (("report", "mine/slow", "--html", "/dev/null"), "is no regular file"),
        (("report", "mine/slow", "--html", "/nowhere/x.html"), "there is no folder /nowhere"),
        (("report", "--user", "--since", "0d"), "1 second to ten years"),
        (("report", "mine/slow", "--open"), "--open belongs to --html"),
        (("compare", "mine/slow"), "at least two runs"),
        (("compare", "mine/slow@0", "mine/slow@7"), "has no attempt 7; valid: 0"),
        (("monitor",), "no command; write it after --"),
    ],
)
def test_bad_input_is_one_line(runs: Path, words: tuple[str, ...], says: str) -> None:
    done = slurmopt(*words, folder=runs, status=2)
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_price_file_with_nonsense_costs_only_the_price(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("currency: [1]\n")
    text = slurmopt("report", "mine/slow", folder=runs, SLURMOPT_PRICES=str(tmp_path / "prices.yaml")).stdout
    assert "no price is known" in text
    assert "Attempts" in text


def test_a_stated_price_makes_a_cost(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("currency: EUR\nprices: []\ncpu_per_hour: 36000\n")
    done = slurmopt("report", "mine/slow", "--json", folder=runs, SLURMOPT_PRICES=str(tmp_path / "prices.yaml"))
    report = data_of(done.stdout)
    assert report["cost"]["currency"] == "EUR"
    assert report["cost"]["amount"] == pytest.approx(10 * report["device_seconds"])


BEATS = "runs/plain/*/heartbeat/*/rank-0.json"
MONITORED = """
import os, signal, sys, time, slurmopt
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(9))
for step in range(1, 1000):
    slurmopt.progress(step, 1000)
    time.sleep(0.05)
    if step == 20 and 'quick' in sys.argv:
        sys.exit(7)
"""


def test_monitor_gives_a_foreign_command_a_report_and_keeps_its_exit_status(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(MONITORED)
    command = ("--", sys.executable, "plain.py", "quick")
    done = slurmopt("monitor", "--name", "plain", "--every", "1s", *command, folder=tmp_path, status=7)
    assert "monitored as plain/" in done.stderr
    report = report_of(tmp_path, "plain")
    assert (report["state"], report["step"], report["backend"]) == ("failed", 20, "foreign")
    assert sum(share["seconds"] for share in report["shares"]) == pytest.approx(report["device_seconds"], abs=0.01)
    assert report["node_rows"], "the sampler measured this node"
    assert (Path(report["folder"]) / "report.html").exists()


def test_monitor_passes_signals_on(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(MONITORED)
    words = [sys.executable, "-m", "slurmopt", "monitor", "--name", "plain", "--", sys.executable, "plain.py"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        wait_until(lambda: '"step": 1' in "".join(map(Path.read_text, tmp_path.glob(BEATS))), 30, "step 1")
        assert "running" in slurmopt("status", "plain", folder=tmp_path).stdout.splitlines()[0]
        process.send_signal(signal.SIGUSR1)
        assert process.wait(30) == 9


def test_monitor_never_keeps_a_command_from_running(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    done = slurmopt("monitor", "--", sys.executable, "-c", "raise SystemExit(5)", folder=tmp_path, status=5)
    assert done.stderr.startswith("slurmopt: not monitored: ")
    slurmopt("monitor", "--folder", str(tmp_path / "other"), "--", "/no/such/program", folder=tmp_path, status=127)


def test_a_report_that_cannot_be_written_changes_no_outcome(tmp_path: Path) -> None:
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(CONFIG.replace("steps: 40", "steps: 2"))
    (tmp_path / "train.py").write_text(
        "import os, slurmopt\ndef main(config):\n    os.mkdir(slurmopt.current_run().folder.report)\n"
    )
    slurmopt("launch", "+experiment=mine", "launch.backend=local", "launch.id=1", "launch.wait=true", folder=tmp_path)
    run = tmp_path / "runs" / "mine" / "1"
    wait_until(lambda: "the report was not written" in next((run / "logs").glob("job-*")).read_text(), 30, "the line")
    assert "mine/1: finished" in slurmopt("status", "mine/1", folder=tmp_path).stdout
