"""`slurmopt init`: the project that it writes runs at once, resumes after a kill, and overwrites nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from private_cluster import wait_until

from slurmopt.cli import main
from slurmopt.config.composition.compose import compose
from slurmopt.config.composition.settings import settings
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.scaffold import surroundings
from slurmopt.scaffold.new_files import write_new
from slurmopt.scaffold.project import Script, project
from slurmopt.slurm.cluster.cluster_facts import ClusterFacts, NodeGroup, Partition

DEADLINE = 120
SCRIPT = b"#!/usr/bin/env python\n# caf\xc3\xa9\r\nprint('mine')\n"
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["init", *words, "--json"]) == 0
    answer: dict[str, Any] = data_of(capsys.readouterr().out)
    return answer


def start(folder: Path, experiment: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "slurmopt", "launch", f"+experiment={experiment}", "launch.json=true", *words]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=DEADLINE)


def run_of(done: subprocess.CompletedProcess[str]) -> RunFolder:
    assert done.returncode == 0, done.stderr
    return RunFolder(Path(data_of(done.stdout)["run"]))


def killed_once(folder: Path, *words: str) -> list[dict[str, Any]]:
    """The journal of a run whose rank got SIGKILL after a checkpoint, once it has ended."""
    run = run_of(start(folder, "train", "launch.wait=false", *words))

    def beat() -> dict[str, Any]:
        path = run.heartbeat(0, 0)
        return json.loads(path.read_text()) if path.exists() else {}

    wait_until(lambda: (beat().get("step") or 0) >= 500, DEADLINE, "some steps")
    os.kill(beat()["pid"], signal.SIGKILL)
    wait_until(lambda: len(ends(run)) > 1, DEADLINE, "the end of the second attempt", lambda: events.read(run.events))
    return events.read(run.events)


def ends(run: RunFolder) -> list[str]:
    return [event["cause"] for event in events.read(run.events) if event["event"] == "end"]


def test_without_slurm_it_finds_this_machine_and_the_files_are_short(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = init(capsys)
    assert list(answer["files"]) == ["conf/experiment/train.yaml", "conf/cluster/here.yaml", "train.py"]
    for name, text in answer["files"].items():
        assert (folder / name).read_text() == text
        assert len(text.splitlines()) < 30, name
        assert "#" in text, name
    assert answer["next"] == "slurmopt launch +experiment=train"
    assert answer["found"]["cluster"] is None
    held = settings(compose(["+experiment=train"]))
    assert (held.launch.backend, held.resources.nodes, held.resources.time) == ("local", 1, "10m")


@pytest.mark.slow
@needs_torch
def test_the_training_resumes_after_a_kill(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(capsys)
    journal = killed_once(folder, "steps=10000")
    assert [event["cause"] for event in journal if event["event"] == "end"] == ["killed", "finished"]
    assert [event["step"] >= 100 for event in journal if event["event"] == "restored"] == [True]


@pytest.mark.slow
def test_the_training_without_torch_resumes_too(folder: Path) -> None:
    found = replace(surroundings.look(folder), has_torch=False)
    files = project(found, None).files
    assert all(len(text.splitlines()) < 30 for text in files.values())
    assert "torch" not in files["train.py"].partition('"""\n')[2]
    write_new(folder, files)
    slow = files["train.py"].replace("        stop = ", "        __import__('time').sleep(0.001)\n        stop = ")
    (folder / "train.py").write_text(slow)
    journal = killed_once(folder, "steps=1500")
    assert [event["cause"] for event in journal if event["event"] == "end"] == ["killed", "finished"]
    run = next((folder / "runs" / "train").iterdir())
    assert json.loads((run / "state.json").read_text())["step"] == 1500
    assert settings(compose(["+experiment=train"])).resources.ranks_per_node == 1


def test_a_script_is_kept_byte_for_byte_and_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "my train.py").write_bytes(SCRIPT)
    answer = init(capsys, "project", "--from", "my train.py")
    assert (folder / "project" / "my train.py").read_bytes() == SCRIPT == (folder / "my train.py").read_bytes()
    assert answer["next"] == "cd project && slurmopt launch +experiment=my-train"
    run = run_of(start(folder / "project", "my-train"))
    assert run.rank_log(0, 0).read_text() == "mine\n"


def test_a_training_in_the_folder_is_found_and_not_changed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "main.py").write_bytes(SCRIPT)
    (folder / "finetune_it.py").write_text("import accelerate\n")
    assert main(["init"]) == 0
    shown = capsys.readouterr().out
    assert "script   main.py, not changed: one process" in shown
    assert "others   finetune_it.py" in shown
    assert (folder / "main.py").read_bytes() == SCRIPT
    assert not (folder / "train.py").exists()
    assert init(capsys, "--from", "finetune_it.py", "other")["script"] == "finetune_it.py"
    assert "distributed" not in (folder / "other" / "conf" / "experiment" / "finetune_it.yaml").read_text()


def test_nothing_is_overwritten_and_nothing_else_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "conf" / "cluster").mkdir(parents=True)
    (folder / "conf" / "cluster" / "here.yaml").write_text("mine")
    before = sorted(folder.rglob("*"))
    for words in ([], ["--dry-run"]):
        assert main(["init", *words]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert f"conf/cluster/here.yaml exists already in {folder}; nothing was written" in shown.err
    assert sorted(folder.rglob("*")) == before


def test_bad_input_is_one_line_and_status_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "file").write_text("")
    (folder / "job.sh").write_text("#!/bin/bash\n#SBATCH -N 1\n")
    (folder / "folder.py").mkdir()
    os.mkfifo(folder / "fifo.py")
    cases = (["file"], ["--from", "no.py"], ["--from", "job.sh"], ["--from", "file"], ["--from", "folder.py"])
    for words in (*cases, ["--from", "fifo.py"], ["a", "b"], ["file/x"]):
        assert main(["init", *words]) == 2, words
        shown = capsys.readouterr()
        assert (shown.out, shown.err.count("\n")) == ("", 1), words
    assert "slurmopt import job.sh" in (main(["init", "--from", "job.sh"]), capsys.readouterr().err)[1]
    assert not (folder / "conf").exists()


def cluster(*partitions: Partition, **more: Any) -> ClusterFacts:
    known = {"accounting": False, "enforces_accounts": False, "enforces_qos": False, "accounts": None, **more}
    return ClusterFacts(
        cluster="Leo 2",
        version="24.11",
        controllers=[],
        max_array_size=1001,
        job_requeue=True,
        partitions=list(partitions),
        **known,
    )


def nodes(count: int, gpus: dict[str, int], usable: int | None = None) -> NodeGroup:
    usable = count if usable is None else usable
    return NodeGroup(nodes="n", count=count, usable=usable, cpus=64, memory=512_000, gpus=gpus)


def part(name: str, *groups: NodeGroup, **more: Any) -> Partition:
    return Partition(**{"name": name, "state": "up", "groups": list(groups), **more})


CPUS = part("cpu", nodes(90, {}), default=True)
MIXED = part("gpu", nodes(4, {"a100": 4}), nodes(8, {"h100": 8}), max_time=300)
DOWN = part("gpu", nodes(4, {"": 4}), state="down")
DRAINED = part("one", nodes(2, {"": 2}, usable=0))
CLOSED, OPEN = part("a", nodes(2, {"": 2}), allow_accounts=["x"]), part("b", nodes(1, {"": 1}))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (
            cluster(CPUS, MIXED),
            {"partition": "gpu", "gpus_per_node": 8, "gpu_type": "h100", "cpus_per_task": 8, "time": "5m"},
        ),
        (cluster(DOWN, CPUS), {"partition": "cpu", "gpus_per_node": 0, "gpu_type": None, "time": "10m"}),
        (cluster(DRAINED), {"partition": None, "gpus_per_node": 0}),
        (
            cluster(CLOSED, OPEN, enforces_accounts=True, accounts={"mine": []}),
            {"partition": "b", "account": "mine", "gpus_per_node": 1},
        ),
    ],
    ids=["GPUs before the default", "what is up", "no usable nodes", "the only account"],
)
def test_the_config_of_a_cluster_fits_what_was_found(
    folder: Path, facts: ClusterFacts, expected: dict[str, Any]
) -> None:
    partition, group = surroundings.chosen(facts)
    found = replace(surroundings.look(folder), cluster=facts, partition=partition, group=group, has_torch=True)
    found = replace(found, account=surroundings.the_account(facts))
    made = project(found, None)
    write_new(folder, made.files)
    held = settings(compose(["+experiment=train"])).resources
    assert made.cluster == "leo-2"
    assert {key: getattr(held, key) for key in expected} == expected
    plain = project(found, Script("main.py", distributed=False)).files["conf/experiment/main.yaml"]
    assert f"gpus_per_node: {min(1, expected['gpus_per_node'])}" in plain
