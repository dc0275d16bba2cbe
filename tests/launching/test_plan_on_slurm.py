"""`slurmopt plan` on a real Slurm: its rows can be launched, and later plans learn from what these runs measured."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from launching.conftest import Project

TRAIN = """
import time
from slurmopt import progress

def main(config):
    for step in range(1, 15):
        time.sleep(0.02 * config.slow)
        progress(step)

main.makes_process_group = True  # without torch
"""
EXPERIMENT = """# @package _global_
task: {_target_: train.main}
resources: {nodes: 1, gpus_per_node: 2, gpu_type: null, cpus_per_task: 1, time: 10m}
monitor: {sampler: false}
health: {enabled: false}
plan:
  model: small.json
  gpu: h100
  network: 3200
  nodes: [1, 2, 64]
  sequence: 512
  global_batch: 512
  tokens: 1e6
  keys: {micro_batch: batch, strategy: parallel.strategy}
parallel: {strategy: ddp}
batch: 1
slow: 1
"""
SMALL = {
    "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "intermediate_size": 704, "vocab_size": 1000,
}  # fmt: skip


@pytest.fixture
def site(project: Project) -> Project:
    (project.path / "train.py").write_text(TRAIN)
    (project.path / "small.json").write_text(json.dumps(SMALL))
    folder = project.path / "conf" / "experiment"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(EXPERIMENT)
    return project


def plan(site: Project, *words: str) -> dict[str, Any]:
    found = data_of(site.slurmopt("plan", "+experiment=mine", "--json", *words).stdout)
    assert isinstance(found, dict)
    return found


def test_a_row_is_launched_and_the_next_plan_learns_from_it(site: Project) -> None:
    first = plan(site)
    assert first["tier"] == {"memory": 1, "step": 1, "runs": 0}
    one, two, many = first["shapes"]
    assert (one["nodes"], two["nodes"], many["nodes"]) == (1, 2, 64)
    assert one["wait"] is not None
    assert one["wait"] < 60
    assert many["wait"] is None
    said = "resources.nodes: 64 are more than the nodes of partition main that fit; valid: up to 4"
    assert many["wait_text"] == said
    assert first["chosen"] in (1, 2)
    assert one["fits"] > 0.99
    for slow in (1, 1.1, 0.9):
        launched = site.submit("+experiment=mine", *two["overrides"], f"slow={slow}", "launch.name=planned")
        site.wait_for(launched, "finished")
    again = plan(site)
    assert again["tier"]["step"] == 3
    assert again["tier"]["runs"] == 3
    low, high = again["shapes"][1]["step"]
    assert low < 0.02 < high
    assert high / low < 2.5
    report = data_of(site.slurmopt("report", "planned", "--json").stdout)
    assert report["planned"]["step"] == pytest.approx(0.02, rel=0.5)
    assert report["planned"]["planned_step"] == pytest.approx(two["step"])
    shown = site.slurmopt("report", "planned").stdout
    assert "planned" in next(line for line in shown.splitlines() if line.strip().startswith("plan "))


def test_the_table_marks_what_to_take_and_how_to_launch_it(site: Project) -> None:
    done = site.slurmopt("plan", "+experiment=mine", "plan.nodes=[1,2]")
    (taken,) = (line for line in done.stdout.splitlines() if line.startswith("→"))
    (launch,) = (line for line in done.stdout.splitlines() if line.startswith("next "))
    assert f"resources.nodes={taken.split()[1]} " in launch
    assert "prices of" in done.stdout
    assert "hint" in done.stdout
    assert not list(Path(site.path).glob("runs/*")), "a plan launches nothing and leaves nothing"
    words = shlex.split(launch)[2:]
    assert "batch=" in launch
    dry = site.slurmopt("launch", *words[1:], "launch.dry_run=true")
    assert "#SBATCH" in dry.stdout


def test_partitions_and_time_limits_are_compared_by_the_end_of_the_run(site: Project) -> None:
    """`short` takes ten minutes at most, although Slurm estimates a start there: it is told, and not taken."""
    compared = ("plan.partitions=[short,main]", "plan.times=[1h,2h]", "plan.nodes=[1]")
    (row,) = plan(site, *compared)["shapes"]
    assert [(each["partition"], each["time"]) for each in row["options"]] == [
        ("short", "1h"), ("short", "2h"), ("main", "1h"), ("main", "2h"),
    ]  # fmt: skip
    assert [each["wait"] is None for each in row["options"]] == [True, True, False, False]
    assert "01:00:00 is longer than partition short allows" in row["options"][0]["wait_text"]
    assert row["overrides"][-2] == "resources.partition=main"
    assert row["overrides"][-1] in (
        "resources.time=1h",
        "resources.time=2h",
    )  # a moment decides
    p50, p90 = row["finish"]
    assert row["run"][0] < p50 < p90 < row["run_p90"] + 60
    shown = site.slurmopt("plan", "+experiment=mine", *compared).stdout
    assert "(main, " in shown
    assert "waits included" in shown


def test_nothing_fits_is_an_answer(site: Project) -> None:
    done = site.slurmopt("plan", "+experiment=mine", "plan.model=llama-405b", "--json", check=False)
    assert done.returncode == 1
    assert data_of(done.stdout)["chosen"] is None
    assert all(math.isfinite(row["count"]) for row in data_of(done.stdout)["rejected"])
    assert "which come nearest, its peak is" in done.stderr


SCALES = """
import time
from slurmopt import progress, rank_facts, stop_requested

def main(config):
    nodes = rank_facts().world_size // 2
    if nodes in config.breaks_on:
        raise ValueError("no such number of nodes")
    for step in range(1, 10**6):
        time.sleep(0.02 + 0.16 / nodes)
        progress(step)
        if stop_requested():
            break

main.makes_process_group = True  # without torch
"""


def test_probes_predict_a_third_number_of_nodes(site: Project) -> None:
    (site.path / "train.py").write_text(SCALES)
    words = ("+experiment=mine", "+breaks_on=[]", "--steps", "20", "--json")
    done = site.slurmopt("plan", "probe", *words, "--nodes", "1,2", "--predict", "4,16", timeout=180)
    found = data_of(done.stdout)
    assert [probe["nodes"] for probe in found["probes"]] == [1, 2]
    assert 0.05 < found["serial_fraction"] < 0.25  # 0.02 of 0.18 s, and what a step costs besides
    four, sixteen = found["predicted"]
    assert not four["far"]
    assert sixteen["far"]
    third = data_of(site.slurmopt("plan", "probe", *words, "--nodes", "2,4", timeout=180).stdout)
    low, high = four["seconds"]
    assert low < third["probes"][1]["seconds"] < high
    site.wait_until_no_job_is_left()  # probes are cancelled once they have made their steps
    read = data_of(site.slurmopt("plan", "probe", "--read", "mine", "--json").stdout)
    assert [probe["nodes"] for probe in read["probes"]] == [1, 2, 4]
    assert {probe["state"] for probe in read["probes"]} == {"cancelled"}


def test_a_probe_that_fails_is_named(site: Project) -> None:
    (site.path / "train.py").write_text(SCALES)
    words = ("+experiment=mine", "+breaks_on=[2]", "--steps", "10", "--nodes", "1,2")
    done = site.slurmopt("plan", "probe", *words, check=False, timeout=180)
    assert done.returncode == 1
    assert "the probe on 2 nodes is failed (" in done.stderr
    assert "slurmopt logs mine-probe-2/" in done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("1 "))
    assert " s " in row
    refused = site.slurmopt("plan", "probe", *words[:2], "--nodes", "1,64", check=False)
    assert refused.returncode == 2
    assert "64" in refused.stderr
    site.wait_until_no_job_is_left()
