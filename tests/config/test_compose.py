"""From overrides to a config: whose files win, what stays unresolved, what YAML's clock times mean."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slurmopt import launch
from slurmopt.launching import run_plan


def test_the_users_folder_wins_over_the_shipped_one(project: Path) -> None:
    (project / "conf" / "cluster").mkdir()
    (project / "conf" / "cluster" / "auto.yaml").write_text("# @package _global_\nresources: {partition: ours}\n")
    plan = run_plan.plan(["+experiment=mine", "launch.backend=local"])
    assert plan.job.settings.resources.partition == "ours"


def test_groups_and_keys_of_the_users_own_live_beside_the_typed_ones(project: Path) -> None:
    (project / "conf" / "model").mkdir()
    for name, layers in (("small", 2), ("large", 12)):
        (project / "conf" / "model" / f"{name}.yaml").write_text(f"layers: {layers}\n")
    (project / "conf" / "experiment" / "own.yaml").write_text(
        "# @package _global_\ndefaults:\n  - /model: small\ntask: {command: [echo, '${model.layers}']}\n"
    )
    assert run_plan.plan(["+experiment=own", "launch.backend=local"]).stored["model"] == {"layers": 2}
    plan = run_plan.plan(["+experiment=own", "model=large", "launch.backend=local"])
    assert plan.job.settings.task.command == ["echo", 12]


def test_config_dir_stands_in_for_conf(project: Path) -> None:
    (project / "other" / "experiment").mkdir(parents=True)
    (project / "other" / "experiment" / "mine.yaml").write_text(
        "# @package _global_\nlr: 7\ntask: {command: [echo, '${lr}']}\n"
    )
    plan = run_plan.plan(["+experiment=mine", "launch.backend=local"], "other")
    assert plan.job.settings.task.command == ["echo", 7]


def test_an_experiment_wins_over_the_cluster_and_the_command_line_over_both(project: Path) -> None:
    (project / "conf" / "cluster").mkdir()
    (project / "conf" / "cluster" / "ours.yaml").write_text("# @package _global_\nresources: {time: 1h, nodes: 4}\n")
    plan = run_plan.plan(["+experiment=mine", "cluster=ours", "launch.backend=local"])
    assert (plan.job.settings.resources.time, plan.job.settings.resources.nodes) == ("10:00:00", 4)
    plan = run_plan.plan(["+experiment=mine", "cluster=ours", "resources.time=2h", "launch.backend=local"])
    assert plan.job.settings.resources.time == "2h"


def test_a_clock_time_without_quotes_is_no_number(project: Path) -> None:
    assert run_plan.plan(["+experiment=mine", "launch.backend=local"]).job.settings.resources.time == "10:00:00"


def test_a_value_stays_one_word(project: Path) -> None:
    plan = run_plan.plan(["+experiment=mine", "lr='a b $(touch x)'", "launch.backend=local"])
    assert plan.job.settings.task.command == ["echo", "--lr", "a b $(touch x)"]


def test_what_reads_the_environment_is_stored_unresolved(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    plan = run_plan.plan(
        [
            "+experiment=mine",
            "+auth={key: '${oc.env:TOKEN}', twice: '${auth.key}', loud: '${oc.decode:${oc.env:TOKEN}}'}",
            "+copy=${auth}",
            "+plain=${lr}",
            "+environment.variables.KEY=${oc.env:TOKEN}",
            "launch.backend=local",
        ]
    )
    assert plan.stored["auth"] == {
        "key": "${oc.env:TOKEN}",
        "twice": "${auth.key}",
        "loud": "${oc.decode:${oc.env:TOKEN}}",
    }
    assert plan.stored["copy"] == "${auth}"
    assert plan.stored["plain"] == 0.1
    assert plan.stored["data"] == {"path": "${oc.env:SCRATCH}/set"}
    assert "s3cret" not in str(plan)


def test_hydras_own_words_are_answered_at_launch(project: Path) -> None:
    plan = run_plan.plan(
        [
            "+experiment=mine",
            "+chosen=${hydra:runtime.choices.experiment}",
            "+output=${hydra:runtime.output_dir}",
            "launch.backend=local",
        ]
    )
    assert plan.stored["chosen"] == "mine"
    assert plan.stored["output"] == str(plan.job.folder.path)
    assert "hydra" not in plan.stored


def test_resolvers_of_the_users_own(project: Path) -> None:
    (project / "my_resolvers.py").write_text(
        "from omegaconf import OmegaConf\nOmegaConf.register_new_resolver('double', lambda x: 2 * x, replace=True)\n"
    )
    plan = run_plan.plan(
        ["+experiment=mine", "+d=${double:21}", "launch.imports=[my_resolvers]", "launch.backend=local"]
    )
    assert plan.stored["d"] == 42


def test_hydra_shows_the_config_and_leaves_nothing_behind(project: Path) -> None:
    command = [sys.executable, "-m", "slurmopt.launch", "--cfg", "job", "+experiment=mine", "lr=5"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "lr: 5" in done.stdout
    assert "nodes: 1" in done.stdout
    assert not (project / "outputs").exists()


def test_a_dry_run_prints_the_script_alone(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["+experiment=mine", "launch.backend=local", "launch.dry_run=true", "launch.id=one"]) == 0
    output = capsys.readouterr()
    assert output.out.startswith("#!/bin/bash\n")
    assert "launch.id=one submits this very script" in output.err
    assert not (project / "runs").exists()
