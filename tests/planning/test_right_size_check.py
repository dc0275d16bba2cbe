"""Whether a run that asked for less had enough, how many GPUs runs need, all names of a user: by folders of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from json_answer import data_of
from sweeps.conftest import MadeSweep, make_sweep

from slurmopt.cli import main
from slurmopt.planning.right_size import Gpus, Used, gpus_needed
from slurmopt.planning.right_size_check import Trial, check
from slurmopt.run_folder.layout import RunFolder

__all__ = ["make_sweep"]

T = 1_790_000_000.0
HOUR = 3600.0
GIB = 2.0**30


def trial(asked: float | None, used: float | None = None, finished: bool = True, was_short: bool = False) -> Trial:
    return Trial(label="one", asked=asked, used=used, finished=finished, was_short=was_short)


def verdict(*newest_first: Trial) -> tuple[float | None, float, bool | None] | None:
    found = check(newest_first)
    return None if found is None else (found.trial.asked, found.before, found.trial.had_enough)


def test_a_run_that_asked_for_less_and_finished_had_enough() -> None:
    assert verdict(trial(20, 15), trial(64, 14), trial(64, 15)) == (20, 64, True)


def test_a_run_that_ended_for_want_of_it_had_not() -> None:
    assert verdict(trial(20, 20, finished=False, was_short=True), trial(64)) == (20, 64, False)
    assert verdict(trial(20, finished=True, was_short=True), trial(64)) == (20, 64, False), "it was started again"


def test_runs_that_do_not_tell_give_way_to_those_that_do() -> None:
    preempted, at_its_limit = trial(20, 5, finished=False), trial(20, 20)
    assert verdict(preempted, at_its_limit, trial(24, 15), trial(64)) == (24, 64, True)
    assert verdict(preempted, trial(64)) == (20, 64, None)
    assert verdict(at_its_limit, trial(64)) == (20, 64, None)


def test_as_much_as_before_is_no_check() -> None:
    assert verdict(trial(64), trial(64), trial(20)) is None
    assert verdict(trial(20), trial(None)) is None
    assert verdict(trial(None), trial(20)) is None
    assert verdict() is None


def test_gpus_are_those_that_were_busy_in_any_run() -> None:
    def runs(*busy: int) -> list[Used]:
        return [Used(seconds=1, finished=True, gpus=Gpus(each=8, busy=one, mean=0.01, high=0.02)) for one in busy]

    assert gpus_needed(runs(2, 4, 3)) == 4, "and not fewer because their mean is low"
    assert gpus_needed(runs(2, 4)) is None


class Runs:
    """Run folders under runs/, made by hand: each of two nodes and four hours, the next one a day later."""

    def __init__(self, base: Path) -> None:
        self.base, self.count = base, 0

    def add(
        self,
        name: str = "mine",
        causes: tuple[str, ...] = ("finished",),
        utilisation: tuple[float | None, ...] = (),
        peak: float = 10 * GIB,
        **resources: Any,
    ) -> RunFolder:
        """`utilisation`: percent of each GPU of node1, in one of four hours; those of node2 are idle."""
        self.count += 1
        run = RunFolder(self.base / "runs" / name / f"202611{self.count:02d}-120000-abcd")
        run.make()
        asked = {"nodes": 2, "gpus_per_node": len(utilisation), **resources}
        run.config.write_text(yaml.safe_dump({"resources": asked}))
        run.script.write_text("#!/bin/bash\n")
        start = T + 86400 * self.count
        lines: list[dict[str, Any]] = [
            {"event": "created", "name": name, "id": run.id, "time": start},
            {"event": "submitted", "token": "t", "backend": "sbatch", "job": "7", "time": start},
        ]
        for attempt, cause in enumerate(causes):
            outcome = "finished" if cause == "finished" else "killed"
            end = {"next": None if cause in ("finished", "user error") else "requeue", "cause": cause, "exit_code": 0}
            lines += [
                {"event": "attempt", "attempt": attempt, "job": "7", "nodes": "node[1-2]", "time": start},
                {"event": "end", "attempt": attempt, "outcome": outcome, "time": start + 4 * HOUR, **end},
            ]
            for node in ("node1", "node2"):
                self.measured(run, attempt, node, start, utilisation, peak)
            start += 5 * HOUR
        run.events.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return run

    def measured(
        self, run: RunFolder, attempt: int, node: str, start: float, util: tuple[float | None, ...], peak: float
    ) -> None:
        columns = [*(f"gpu{at}.util" for at in range(len(util))), "node.memory_peak", "node.cpu"]
        facts = {"gpus": [{"index": at, "name": "NVIDIA H100 80GB HBM3"} for at in range(len(util))]}
        head = {"slurmopt_series": 1, "node": node, "attempt": attempt, "columns": columns, "facts": facts}
        rows = []
        for hour in range(4):
            of_gpus = [one if hour == 0 and node == "node1" else None if one is None else 0.0 for one in util]
            rows.append([start + (hour + 1) * HOUR, HOUR, *of_gpus, peak, 3.0])
        path = run.series(attempt, node)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in [head, *rows]))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nonexistent")  # there is no Slurm to ask
    return Runs(tmp_path)


def size(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["plan", "size", *words, "--json"]) == 0
    return data_of(capsys.readouterr().out)


def need(found: Any, key: str) -> Any:
    return next((each for each in found["needs"] if each["key"] == f"resources.{key}"), None)


def test_a_gpu_that_no_run_used_is_not_asked_for(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    for used in ((80.0, 80.0, 0.0, 0.0), (90.0, 0.0, 0.0, 0.0), (80.0, 80.0, 70.0, 0.0)):
        runs.add(utilisation=used)
    found = size(capsys, "mine")
    assert need(found, "gpus_per_node") == {
        "key": "resources.gpus_per_node", "asked": 4, "used": 3, "enough": 3,
        "override": "resources.gpus_per_node=3",
    }  # fmt: skip
    # Of three runs on two nodes for four hours, one GPU of each node.
    assert {"key": "resources.gpus_per_node", "amount": 3 * 2 * 4.0, "unit": "GPU-hours"} in found["wasted"]
    # 80+80, 90 and 80+80+70 percent of an hour, of 3 · 2 nodes · 4 GPUs · 4 hours.
    assert found["gpus"]["mean"] == pytest.approx((1.6 + 0.9 + 2.3) / (3 * 2 * 4 * 4))
    assert (found["gpus"]["each"], found["gpus"]["busy"], found["gpus"]["high"]) == (4, 3, 0.0)
    assert main(["plan", "size", "mine"]) == 0
    shown = capsys.readouterr().out
    assert "gpus      3 of 4 of a node were busy at some time; utilisation 5% in the mean" in shown
    assert "resources.gpus_per_node=3" in shown.splitlines()[-1]


def test_a_low_mean_is_no_reason_for_fewer_gpus(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        runs.add(utilisation=(4.0, 3.0, 2.0, 5.0))
    found = size(capsys, "mine")
    assert found["gpus"]["mean"] < 0.01
    assert need(found, "gpus_per_node")["override"] is None
    assert not any(each["unit"] == "GPU-hours" for each in found["wasted"])


def test_gpus_that_were_not_all_measured_are_not_told_of(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        run = runs.add(utilisation=(80.0, 0.0))
        runs.measured(run, 0, "node2", T, (0.0, None), 10 * GIB)
    found = size(capsys, "mine")
    assert need(found, "gpus_per_node") is None
    assert "resources.gpus_per_node: the use of all 2 was measured in fewer than 3 runs" in found["unknown"]


def test_none_that_was_ever_busy_can_be_launched(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        runs.add(utilisation=(1.0, 0.0), gpu_type="h100")
    override = need(size(capsys, "mine"), "gpus_per_node")["override"]
    assert override == "resources.gpus_per_node=0 resources.gpu_type=null"


def test_memory_of_gpus_is_replaced(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        runs.add(utilisation=(80.0, 80.0), memory_per_gpu="64GB")
    found = need(size(capsys, "mine"), "memory")
    assert found["asked"] == 128 * GIB
    assert found["override"] == "resources.memory=12GB resources.memory_per_gpu=null"


def test_the_next_run_is_checked(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        runs.add(memory="64GB", time="1d")
    assert size(capsys, "mine")["checked"] == []
    newest = runs.add(memory="12GB", time="6h")
    checked = {each["key"]: each for each in size(capsys, "mine")["checked"]}
    assert checked["resources.memory"] == {
        "key": "resources.memory", "run": f"mine/{newest.id}", "asked": 12 * GIB, "before": 64 * GIB,
        "used": 10 * GIB, "enough": True,
    }  # fmt: skip
    assert (checked["resources.time"]["used"], checked["resources.time"]["enough"]) == (4 * HOUR, True)
    runs.add(memory="11GB", time="5h", causes=("preemption", "user error"))
    found = {each["key"]: each["asked"] for each in size(capsys, "mine")["checked"]}
    assert found == {"resources.memory": 12 * GIB, "resources.time": 6 * HOUR}, "one that was preempted does not tell"
    runs.add(memory="10GB", time="4h", causes=("time limit", "out of memory", "finished"))
    checked = {each["key"]: each for each in size(capsys, "mine")["checked"]}
    assert checked["resources.memory"]["enough"] is False
    assert checked["resources.time"]["enough"] is False
    assert main(["plan", "size", "mine"]) == 0
    assert (
        "asked for 10.0 GiB instead of 11.0 GiB: not enough; an attempt ended for want of it" in capsys.readouterr().out
    )


def test_all_names_the_most_wasteful_first(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        runs.add("fine", utilisation=(80.0, 80.0), memory="12GB")
        runs.add("wide", utilisation=(80.0, 0.0), memory="12GB")
        runs.add("fat", utilisation=(80.0, 80.0), memory="64GB")
    broken = runs.add("broken")
    broken.config.write_bytes(b"\x00\xff{")
    edited = runs.add("edited")
    edited.config.write_text("resources: {gpus_per_node: -1, colour: red}\n")
    for number, text in enumerate(("resources: [1]\n", "resources: {extra: 3}\n", "resources: {1: 2}\n", "3\n")):
        runs.add(f"odd{number}").config.write_text(text)
    found = size(capsys, "--all")
    assert [each["name"] for each in found["names"]][:2] == ["wide", "fat"]
    assert [line.partition("/")[0] for line in found["problems"]] == [
        "odd3",
        "odd2",
        "odd1",
        "odd0",
        "edited",
        "broken",
    ]
    assert all(": its config" in line for line in found["problems"])
    assert main(["plan", "size", "--all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "RUNS", "FINISHED", "GPU-HOURS", "CORE-HOURS", "GIB-HOURS"]
    assert lines[1].split()[:4] == ["wide", "3", "3", "24.0"]
    assert lines[-1] == "next      slurmopt plan size wide"


def test_a_sweep_is_sized_by_its_points(make_sweep: Any, runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    sweep: MadeSweep = make_sweep("mine", lr=[1, 2, 3, 4])
    sweep.submitted("0-3", "7")
    for point in range(3):
        run = sweep.started(point)
        with run.events.open("a") as journal:
            end = {
                "time": T * 2,
                "event": "end",
                "attempt": 0,
                "outcome": "finished",
                "cause": "finished",
                "next": None,
            }
            journal.write(json.dumps(end) + "\n")
    found = size(capsys, sweep.label)
    assert (found["runs"], found["finished"]) == (3, 3)
    assert need(found, "time")["asked"] == 600
    assert size(capsys, f"{sweep.label}/0-1")["runs"] == 2
    assert size(capsys, "mine")["runs"] == 3
    assert main(["plan", "size", f"{sweep.label}/3"]) == 2
    assert "no point that has an array task of its own has started" in capsys.readouterr().err


def test_one_run_is_no_history(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs.add()
    assert main(["plan", "size", f"mine/{run.id}"]) == 2
    assert "is one run, which tells too little; valid: a name of runs, or a sweep" in capsys.readouterr().err
