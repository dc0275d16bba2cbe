"""`slurmopt plan cluster` on a machine without Slurm."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

EXPERIMENT = """# @package _global_
task: {command: [python, train.py]}
launch: {backend: local}
resources: {nodes: 2, gpus_per_node: 8, gpu_type: h100}
plan:
  model: llama-8b
  network: 3200
  sequence: 4096
  global_batch: 512
  tokens: 1e9
  strategy: fsdp
  keys: {micro_batch: train.batch, strategy: train.strategy}
train: {batch: 1, strategy: fsdp}
"""

CLUSTERS = """clusters:
  ours: &ours
    size: small
    nodes: 16
    gpus: 128
    source: our inventory
    node: {instance: box, gpu: h100, gpus: 8, domain: 8, source: our inventory}
    network: {kind: infiniband, gbits: 3200, adapters: 8, adapter_gbits: 400, source: our inventory}
    topology: {kind: fat-tree, tiers: 2, oversubscription: 8, leaf_nodes: 4, source: our inventory}
    storage: {kind: lustre, gb_per_second: 8, node_gbits: 400, source: our inventory}
  narrow:
    size: small
    profile: nowhere
    nodes: 2
    gpus: 4
    source: our inventory
    node: {instance: box, gpu: v100-32gb, gpus: 2, domain: 2, source: our inventory}
    network: {kind: ethernet, gbits: 100, adapters: 1, adapter_gbits: 100, source: our inventory, assumed: [gbits]}
    topology: {kind: switch, tiers: 1, oversubscription: 1, source: our inventory}
    storage: {kind: other, gb_per_second: 1, node_gbits: 100, source: our inventory}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("clusters")
    (place / "conf" / "experiment").mkdir(parents=True)
    (place / "conf" / "experiment" / "mine.yaml").write_text(EXPERIMENT)
    (place / "train.py").write_text("")
    (place / "ours.yaml").write_text(CLUSTERS)
    return place


def slurmopt(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "slurmopt", *words]
    return subprocess.run(argv, cwd=place, capture_output=True, text=True, timeout=180)


def compared(place: Path, *words: str) -> dict[str, Any]:
    done = slurmopt(place, "plan", "cluster", "+experiment=mine", "--json", *words)
    assert done.returncode == 0, done.stderr
    found = data_of(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def answer(place: Path) -> dict[str, Any]:
    return compared(place)


def rows(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in answer["clusters"]}


def test_each_cluster_that_ships_has_a_row(answer: dict[str, Any]) -> None:
    found = rows(answer)
    assert {"g6e-small", "p4d-small", "p5-large", "p6-b200-medium", "dgx-h100-large"} <= set(found)
    assert found["p4d-small"]["why_not"].startswith("on 4 nodes its peak is "), "8B and 40 GB"
    assert found["p4d-small"]["step"] is None
    assert found["p4d-small"]["bisection"] == pytest.approx(2 * 50e9), "400 Gbit/s from each of two nodes"
    assert found["g6e-small"]["no_price"] == "no price is known of l40s"
    assert found["g6e-small"]["money"] is None
    assert found["g6e-small"]["step"][0] > 0
    assert "no price is known of l40s; SLURMOPT_PRICES names a file with yours" in answer["notes"]
    assert "assumed: topology.oversubscription of g6e-small" in answer["notes"]
    for row in found.values():
        if row["why_not"] is None:
            assert row["run"] == [pytest.approx(end * 1e9 / (512 * 4096)) for end in row["step"]]
            assert row["gpu_hours"][1] == pytest.approx(row["run"][1] * row["gpus"] / 3600)
            assert row["save"]["bytes"] == pytest.approx(12 * 8_030_261_248)


def test_a_row_is_what_the_plan_of_that_cluster_says(place: Path, answer: dict[str, Any]) -> None:
    row = rows(answer)["p5-medium"]
    words = [f"plan.nodes=[{row['nodes']}]", "cluster=hyperpod_p5"]
    done = slurmopt(place, "plan", "+experiment=mine", "--json", *words)
    (shape,) = data_of(done.stdout)["shapes"]
    for key in ("step", "fits", "run", "gpu_hours", "money", "micro_batch", "tokens_per_second"):
        assert shape[key] == row[key], key
    assert row["money"]["amount"][0] == pytest.approx(6.88 * row["gpu_hours"][0])


def test_the_choice_is_the_fastest_within_a_fifth_of_the_least_money(answer: dict[str, Any]) -> None:
    def middle(ends: list[float]) -> float:
        return float((ends[0] * ends[1]) ** 0.5)

    priced = [row for row in answer["clusters"] if row["money"] is not None]
    least = min(middle(row["money"]["amount"]) for row in priced)
    near = [row for row in priced if middle(row["money"]["amount"]) <= 1.2 * least]
    assert answer["chosen"] == min(near, key=lambda row: middle(row["run"]))["name"]
    assert "within 20% of the least money" in answer["why"]
    assert rows(answer)[answer["chosen"]]["front"]


def test_what_is_next_can_be_launched(place: Path, answer: dict[str, Any]) -> None:
    row, words = rows(answer)[answer["chosen"]], answer["launch"]
    assert f"cluster={row['profile']}" in words
    assert f"resources.nodes={row['nodes']}" in words
    done = slurmopt(place, "launch", *words, "--dry-run")
    assert done.returncode == 0, done.stderr
    text = slurmopt(place, "plan", "cluster", "+experiment=mine").stdout
    assert f"next      slurmopt launch {shlex.join(words)}" in text
    assert f"take      {row['name']}, {row['nodes']} nodes of it: {answer['why']}" in text
    again = slurmopt(place, "plan", "--json", *words, f"plan.nodes=[{row['nodes']}]")
    (shape,) = data_of(again.stdout)["shapes"]
    assert shape["step"] == row["step"]


def test_clusters_of_the_users_own(place: Path) -> None:
    answer = compared(place, "--clusters", "ours.yaml")
    found = rows(answer)
    assert list(found) == ["ours", "narrow"]
    assert found["narrow"]["why_not"].startswith("on 2 nodes its peak is ")
    assert answer["why"] == "the only one on which the training fits"
    assert answer["launch"] is None
    assert "no profile of conf/cluster/ goes with ours: write one, and launch with cluster=" in answer["notes"]
    assert "assumed: network.gbits of narrow" in answer["notes"]
    assert found["ours"]["bisection"] == pytest.approx(8 * 400e9 / 8)
    assert found["ours"]["nvme"] is None
    both = compared(place, "--clusters", "ours.yaml", "--only", "ours,p5-medium")
    assert list(rows(both)) == ["ours", "p5-medium"]


def test_oversubscription_makes_steps_over_leaves_longer(place: Path) -> None:
    words = ("--clusters", "ours.yaml", "--only", "ours,p5-medium")
    inside = rows(compared(place, *words, "plan.nodes=[4]"))
    assert inside["ours"]["step"] == inside["p5-medium"]["step"]
    over = rows(compared(place, *words, "plan.nodes=[16]"))
    assert over["ours"]["step"][1] > over["p5-medium"]["step"][1]
    assert over["ours"]["bisection_of_nodes"] == over["p5-medium"]["bisection_of_nodes"] / 8
    assert over["ours"]["save"]["seconds"] == pytest.approx(12 * 8_030_261_248 / 8e9)


def test_fewer_nodes_than_asked_for(place: Path) -> None:
    found = rows(compared(place, "--only", "p5-small,p5-large", "plan.nodes=[8,16]"))
    assert found["p5-small"]["why_not"] == "it has 4 nodes, fewer than plan.nodes"
    assert found["p5-large"]["nodes"] in (8, 16)


def test_a_profile_that_is_not_there_leaves_the_table(place: Path) -> None:
    words = ("--clusters", "ours.yaml", "--only", "narrow", "plan.model=gpt2", "plan.sequence=1024")
    answer = compared(place, *words)
    assert answer["chosen"] == "narrow"
    assert answer["launch"] is None
    assert any(note.startswith("cluster=nowhere cannot be composed: ") for note in answer["notes"])


def test_without_tokens_the_choice_goes_by_a_step(place: Path) -> None:
    answer = compared(place, "plan.tokens=null", "--only", "p5-small,p6-b200-medium,g6e-small")
    assert answer["chosen"] == "p6-b200-medium"
    assert all(row["run"] is None and row["money"] is None for row in answer["clusters"])
    assert any("plan.tokens is not set" in note for note in answer["notes"])


def test_a_config_without_gpus_needs_a_global_batch(place: Path) -> None:
    words = ("resources.gpus_per_node=0", "resources.gpu_type=null", "plan.network=null", "--only", "p5-small")
    assert rows(compared(place, *words))["p5-small"]["why_not"] is None
    done = slurmopt(place, "plan", "cluster", "+experiment=mine", *words, "plan.global_batch=null")
    assert done.returncode == 2
    assert "plan.global_batch: is not set, and resources.gpus_per_node is 0; valid: samples of a step" in done.stderr


def test_no_cluster_that_fits_is_exit_status_1(place: Path) -> None:
    done = slurmopt(place, "plan", "cluster", "+experiment=mine", "plan.model=llama-405b", "--only", "p5-small")
    assert done.returncode == 1
    assert "p5-small: on 4 nodes its peak is " in done.stdout
    assert "slurmopt: error: plan cluster: the training fits on none of these clusters" in done.stderr


def test_prices_of_another_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "prices.yaml").write_text(
        "currency: EUR\nprices:\n- {gpu: L40S, per_hour: 0.01, date: 2026-01-01, source: ours}\n"
    )
    monkeypatch.setenv("SLURMOPT_PRICES", str(place / "prices.yaml"))
    answer = compared(place, "--only", "g6e-small,p5-small")
    assert answer["chosen"] == "g6e-small"
    assert answer["why"] == "the only one with a known price"
    assert "prices of 2026-01-01: ours" in answer["notes"]
    (place / "prices.yaml").write_text("currency: EUR\nprices: []\n")
    answer = compared(place, "--only", "g6e-small,p5-small")
    assert (answer["chosen"], answer["why"]) == ("p5-small", "the fastest; without prices nothing else counts")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "plan cluster: no experiment; valid: slurmopt plan cluster +experiment=NAME"),
        (("+experiment=mine", "--only", "p5"), "--only: no cluster 'p5'"),
        (("+experiment=mine", "--only", ""), "--only: no cluster ''"),
        (
            ("+experiment=mine", "--clusters", "missing.yaml"),
            "missing.yaml: cannot be read: missing.yaml: no such file",
        ),
        (("+experiment=mine", "--clusters", "."), "cannot be read: .: it is a folder, not a regular file"),
        (("+experiment=mine", "--clusters", "train.py"), "train.py: is empty; valid: a mapping with clusters"),
        (("+experiment=mine", "plan.model=null"), "plan.model: is not set; valid: a model such as llama-8b"),
        (("+experiment=none",), "none"),
    ],
)
def test_what_cannot_be_compared_is_one_line(place: Path, words: tuple[str, ...], message: str) -> None:
    done = slurmopt(place, "plan", "cluster", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
