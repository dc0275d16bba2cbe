"""Each thing that the cluster cannot give is one line with key, value and what would be valid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from captured import mini

from slurmopt.config.resources import Resources
from slurmopt.slurm.cluster.cluster_facts import ClusterFacts
from slurmopt.slurm.cluster.limits import findings, idle_gpus, remarks, with_site_defaults


def check(facts: ClusterFacts | None = None, array_size: int = 1, **resources: Any) -> list[str]:
    return findings(Resources(**resources), facts or mini(), array_size)


@pytest.mark.parametrize(
    "resources",
    [
        {},
        {"nodes": 4},
        {"gpus_per_node": 8, "gpu_type": "h100", "nodes": 2, "cpus_per_task": 2, "memory": "195GB"},
        {"gpus_per_node": 5, "memory": "0", "time": "1d"},
        {"partition": "short,main", "nodes": 4},
        {"partition": "free", "account": "team", "qos": "normal", "time": "30d"},
        {"account": "other", "qos": "big"},
        {"qos": "big"},
        {"nodelist": "gpu-[01-02]", "exclude": "cpu2"},
        {"nodelist": "/a/file"},
        {"partition": "short", "gpus_per_node": 8},
        {"nodes": "1-4"},
        {"nodes": "4-400"},
        {"partition": "short", "nodes": "1-3"},
    ],
)
def test_what_fits_is_not_complained_about(resources: dict[str, Any]) -> None:
    assert check(**resources) == []


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"partition": "mian"}, ["resources.partition: 'mian'", "did you mean 'main'", "valid: main, short, closed"]),
        ({"partition": "closed"}, ["resources.partition: closed is down now", "up: main, short, free"]),
        ({"partition": "empty"}, ["resources.partition: empty has no nodes", "valid: main"]),
        (
            {"partition": "short", "time": "1d"},
            ["resources.time: 1-00:00:00", "up to 00:10:00", "(long enough: main, free)"],
        ),
        ({"partition": "short", "nodes": 2}, ["resources.nodes: 2", "partition short allows", "up to 1"]),
        ({"nodes": 5}, ["resources.nodes: 5", "partition main", "up to 4 (3 in service now)"]),
        ({"nodes": "5-8"}, ["resources.nodes: 5, the least of 5-8, are more than the nodes", "up to 4 (3 in"]),
        ({"partition": "short", "nodes": "2-4"}, ["resources.nodes: 2, the least of 2-4,", "partition short allows"]),
        ({"gpus_per_node": 4, "nodes": 4}, ["resources.nodes: 4", "that fit", "up to 3"]),
        ({"gpus_per_node": 8, "nodes": 2, "exclude": "gpu-01"}, ["resources.nodes: 2", "not excluded", "up to 1"]),
        ({"gpus_per_node": 9}, ["resources.gpus_per_node: 9 GPUs", "up to 8 GPUs"]),
        ({"gpus_per_node": 5, "gpu_type": "a100"}, ["resources.gpus_per_node: 5 a100 GPUs", "up to 4 a100 GPUs"]),
        (
            {"gpus_per_node": 1, "gpu_type": "h200"},
            ["resources.gpu_type: 'h200'", "did you mean 'h100'", "valid: a100, h100, t4"],
        ),
        (
            {"partition": "short", "gpus_per_node": 1, "gpu_type": "t4"},
            ["resources.gpu_type: 't4'", "with t4: main, free"],
        ),
        ({"cpus_per_task": 65}, ["resources.cpus_per_task: 65 CPUs", "up to 64 CPUs"]),
        ({"memory": "1TB"}, ["resources.memory: 1.0 TiB", "up to 390.6 GiB"]),
        ({"memory_per_cpu": "10GB", "cpus_per_task": 60}, ["resources.memory_per_cpu: 600.0 GiB", "up to 390.6 GiB"]),
        ({"memory_per_gpu": "60GB", "gpus_per_node": 8}, ["resources.memory_per_gpu: 480.0 GiB", "up to 390.6 GiB"]),
        (
            {"gpus_per_node": 8, "cpus_per_task": 4},
            [
                "resources.gpus_per_node, resources.cpus_per_task",
                "8 GPUs and 32 CPUs at once",
                "gpu-01,gpu-02 with 8 GPUs, 16 CPUs",
            ],
        ),
        (
            {"gpus_per_node": 4, "gpu_type": "a100", "memory": "150GB"},
            ["4 a100 GPUs and 150.0 GiB of memory at once", "gpu-03 with 4 a100 GPUs, 97.7 GiB"],
        ),
        ({"account": "teem"}, ["resources.account: 'teem'", "did you mean 'team'", "valid: other, team"]),
        ({"account": "team", "qos": "big"}, ["resources.qos: 'big' is not open to account team", "valid: normal"]),
        ({"partition": "short", "qos": "big"}, ["resources.qos: 'big' may not use partition short", "valid: normal"]),
        ({"nodelist": "gpu-[01-04]"}, ["resources.nodelist: no such nodes here: gpu-04"]),
        ({"nodelist": "cpu2"}, ["resources.nodelist: not in partition main: cpu2", "valid: cpu1"]),
        ({"exclude": "x["}, ["resources.exclude: brackets do not match"]),
    ],
)
def test_one_line_says_what_is_wrong(resources: dict[str, Any], words: list[str]) -> None:
    found = check(**resources)
    assert len(found) == 1, found
    assert all(word in found[0] for word in words), found[0]
    assert found[0].isprintable()


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({"nodes": 4}, None),
        ({"nodes": "2-4"}, None),
        ({"nodes": "2-5"}, "of 2-5 no attempt can have more than 4 in partition main"),
        ({"nodes": "1-4", "partition": "short"}, "of 1-4 no attempt can have more than 1 in partition short"),
        ({"nodes": "1-4", "partition": "short,main"}, None),
        ({"nodes": "1-5", "partition": "short,main"}, "no attempt can have more than 4 in partition short, main"),
        ({"nodes": "1-3", "gpus_per_node": 8}, "no attempt can have more than 2"),
        ({"nodes": "1-2", "gpus_per_node": 8, "exclude": "gpu-01"}, "no attempt can have more than 1"),
    ],
)
def test_nodes_that_no_attempt_can_have_are_told_and_do_not_stop_the_launch(
    resources: dict[str, Any], said: str | None
) -> None:
    assert check(**resources) == []
    told = [line for line in remarks(Resources(**resources), mini()) if line.startswith("resources.nodes")]
    assert len(told) == (said is not None)
    assert all(said in line for line in told)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("resources", "share"),
    [
        ({"gpus_per_node": 8}, 2),
        ({"gpus_per_node": 8, "tasks_per_node": 2}, 8),
        ({"gpus_per_node": 8, "tasks_per_node": 16}, None),  # no more than the one CPU is its part
        ({"gpus_per_node": 8, "cpus_per_task": 2}, None),
        ({"gpus_per_node": 8, "exclusive": True}, None),
        ({}, None),
    ],
)
def test_ranks_with_gpus_and_one_cpu_each_are_told(resources: dict[str, Any], share: int | None) -> None:
    assert check(**resources) == []
    told = remarks(Resources(**resources), mini())
    assert len(told) == (share is not None)
    assert all(line.startswith("resources.cpus_per_task") and f" {share} for each rank" in line for line in told)


@pytest.mark.parametrize(("tasks", "idle"), [(None, False), (8, False), (16, False), (1, True), (7, True)])
def test_gpus_without_a_rank_are_told(tasks: int | None, idle: bool) -> None:
    told = idle_gpus(Resources(gpus_per_node=8, tasks_per_node=tasks))
    assert len(told) == idle


def test_all_of_them_at_once_in_the_same_order() -> None:
    wanted = {"partition": "short", "time": "1d", "nodes": 3, "gpus_per_node": 9, "account": "x", "exclude": "y"}
    found = check(array_size=2000, **wanted)
    keys = [line.split(":")[0] for line in found]
    assert keys == [
        "resources.time",
        "resources.gpus_per_node",
        "resources.nodes",
        "resources.exclude",
        "resources.account",
        "sweep",
    ]
    assert found == check(array_size=2000, **wanted)


def test_an_unknown_partition_brings_no_guesses_about_its_nodes() -> None:
    assert len(check(partition="nope", nodes=500, gpus_per_node=64, time="900d")) == 1


def test_of_several_partitions_the_best_one_counts() -> None:
    found = check(partition="short,main", nodes=5, time="2h")
    assert len(found) == 1
    assert "partition main" in found[0]


def test_arrays_up_to_the_limit() -> None:
    assert check(array_size=1001) == []
    assert "valid: up to 1001" in check(array_size=1002)[0]


def test_a_misspelt_account_is_told_also_where_slurm_would_take_it() -> None:
    lax = replace(mini(), enforces_accounts=False, enforces_qos=False)
    assert "resources.account: 'x' is not one of yours" in check(lax, account="x")[0]
    assert check(replace(lax, accounts={}), account="x") == []
    assert check(replace(lax, accounts=None), account="x", qos="y") == []
    assert check(replace(mini(), accounts=None), account="x", qos="y") == []


def test_a_cluster_without_a_default_partition_wants_one_named() -> None:
    facts = replace(mini(), partitions=[replace(one, default=False) for one in mini().partitions])
    assert "has no default; valid: main" in check(facts)[0]
    filled = with_site_defaults(Resources(), {"SBATCH_PARTITION": "main", "SBATCH_ACCOUNT": ""})
    assert (filled.partition, filled.account) == ("main", None)
    assert findings(filled, facts) == []


def test_gpus_without_types() -> None:
    main = mini().partitions[0]
    untyped = replace(main, groups=[replace(group, gpus={"": 8}) for group in main.groups])
    facts = replace(mini(), partitions=[untyped])
    assert check(facts, gpus_per_node=8) == []
    assert "have no types; leave it out" in check(facts, gpus_per_node=8, gpu_type="h100")[0]


def test_gpus_where_there_are_none() -> None:
    found = check(partition="closed", gpus_per_node=1)
    assert found[-1] == "resources.gpus_per_node: partition closed has no GPUs; with GPUs: main, short, free"
