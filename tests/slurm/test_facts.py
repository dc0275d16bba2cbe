"""Slurm's own words read into facts, and facts kept for a minute."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from captured import CONFIG, NODES, PARTITIONS, mini

from slurmopt.errors import SlurmMissing
from slurmopt.slurm.cluster import cache
from slurmopt.slurm.cluster.cluster_facts import ClusterFacts
from slurmopt.slurm.cluster.facts import facts
from slurmopt.slurm.cluster.parse_facts import cluster_facts, is_usable, parse_gpus, parse_nodes, parse_partitions


@pytest.mark.parametrize(
    ("kind", "tier", "cancels"),
    [("partition_prio", 1, True), ("partition_prio", 9, False), ("qos", 9, True), ("none", 1, False)],
)
def test_where_preemption_ends_a_job_for_good(kind: str, tier: int, cancels: bool) -> None:
    text = f"PartitionName=low PriorityTier={tier} PreemptMode=GANG,CANCEL\nPartitionName=high PriorityTier=9\n"
    low, high = parse_partitions(text, {}, f"preempt/{kind}")
    assert (low.preemption_cancels, high.preemption_cancels) == (cancels, False)


@pytest.mark.parametrize(
    ("line", "doubt"),
    [("JobRequeue = 0", True), ("JobSubmitPlugins = lua", True), ("JobSubmitPlugins = (null)", False), ("", False)],
)
def test_where_a_wish_to_be_requeued_may_be_taken_away(line: str, doubt: bool) -> None:
    assert cluster_facts(line, "", "", None).requeue_in_doubt is doubt


def test_reads_the_cluster() -> None:
    found = mini()
    assert (found.cluster, found.version, found.max_array_size) == ("mini", "22.05.8", 1001)
    assert found.controllers == ["head1(10.0.0.1)", "head2"]
    assert found.accounting
    assert found.enforces_accounts
    assert found.job_requeue
    assert found.accounts == {"team": ["normal"], "other": ["big", "normal"]}


def test_reads_the_partitions() -> None:
    main, short, closed, free, empty = mini().partitions
    assert (main.name, main.default, main.max_time, main.default_time, main.max_nodes) == (
        "main",
        True,
        86400,
        3600,
        None,
    )
    assert (short.max_time, short.max_nodes, short.allow_qos) == (600, 1, ["normal"])
    assert (closed.state, closed.allow_accounts, closed.max_time) == ("down", ["secret"], None)
    assert (free.deny_accounts, free.allow_accounts) == (["guest"], None)
    assert empty.groups == []


def test_nodes_that_differ_in_state_only_are_one_group() -> None:
    short = mini().partitions[1]
    assert [(group.nodes, group.count, group.usable, group.gpus) for group in short.groups] == [
        ("gpu-01,gpu-02", 2, 1, {"h100": 8})
    ]


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", {}),
        ("gpu:8", {"": 8}),
        ("gpu", {"": 1}),
        ("gpu:h100:8(S:0-1)", {"h100": 8}),
        ("gpu:a100:4(S:0,1),gpu:t4:1,craynetwork:4", {"a100": 4, "t4": 1}),
        ("gpu:nvidia_a100_3g.20gb:2,shard:8", {"nvidia_a100_3g.20gb": 2}),
        ("gpu:h100:no_consume:8", {"h100": 8}),
    ],
)
def test_gpus_of_a_gres_text(gres: str, gpus: dict[str, int]) -> None:
    assert parse_gpus(gres) == gpus


def test_which_nodes_are_in_service() -> None:
    assert all(is_usable(state) for state in ("idle", "mixed-", "allocated", "idle~", "completing", "planned"))
    assert not any(
        is_usable(state) for state in ("down", "idle*", "drained", "draining@", "maint", "inval", "unknown*")
    )


def test_lines_of_no_partition_are_passed_over() -> None:
    assert parse_nodes("CLUSTER: other\n\nmain|1|16+|1000|idle|n1|(null)\n")["main"][0].cpus == 16


def test_no_accounts_means_unknown() -> None:
    assert cluster_facts(CONFIG, PARTITIONS, NODES, None).accounts is None
    assert cluster_facts(CONFIG, PARTITIONS, NODES, "elsewhere|third|normal\n").accounts is None


def test_facts_survive_json() -> None:
    assert ClusterFacts.from_json(json.loads(json.dumps(mini().as_json()))) == mini()


def stored(value: object, asked: float | None = None) -> Path:
    cache.write("facts", value, time.time() if asked is None else asked)
    path = cache.place("facts")
    assert path is not None
    return path


@pytest.fixture
def no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever is not in the cache cannot be had."""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("no_slurm")
class TestCache:
    def test_a_fresh_answer_serves_without_slurm(self) -> None:
        path = stored(mini().as_json())
        assert facts() == mini()
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700

    def test_an_old_one_does_not(self) -> None:
        stored(mini().as_json(), time.time() - 61)
        with pytest.raises(SlurmMissing, match=r"launch\.backend=local"):
            facts()

    def test_nor_one_from_the_future(self) -> None:
        stored(mini().as_json(), time.time() + 3600)
        with pytest.raises(SlurmMissing):
            facts()

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"time": 1}', "\xff", '{"time": "x", "value": {}}'])
    def test_nor_a_damaged_one(self, text: str) -> None:
        stored({}).write_text(text, encoding="latin-1")
        with pytest.raises(SlurmMissing):
            facts()

    @pytest.mark.parametrize("value", [{}, [], None, {"partitions": [{"groups": None}]}, {"partitions": 3}])
    def test_nor_one_of_another_version(self, value: object) -> None:
        stored(value)
        with pytest.raises(SlurmMissing):
            facts()

    def test_nor_one_of_another_cluster(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stored(mini().as_json())
        monkeypatch.setenv("SLURM_CONF", "/etc/other/slurm.conf")
        with pytest.raises(SlurmMissing):
            facts()

    def test_nor_a_link_to_somewhere_else(self, tmp_path: Path) -> None:
        path = stored(mini().as_json())
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(SlurmMissing):
            facts()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    def test_nor_one_of_another_user(self) -> None:
        os.chown(stored(mini().as_json()), 12345, 12345)
        with pytest.raises(SlurmMissing):
            facts()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
    def test_nor_one_in_a_folder_of_another_user(self) -> None:
        os.chown(stored(mini().as_json()).parent, 12345, 12345)
        with pytest.raises(SlurmMissing):
            facts()

    def test_fresh_passes_it_by(self) -> None:
        stored(mini().as_json())
        with pytest.raises(SlurmMissing):
            facts(fresh=True)


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    cache.write("facts", {}, time.time())
    assert cache.read("facts", 60) is None
    with cache.lock("facts", 0) as mine:
        assert mine


def test_reading_the_cache_imports_nothing_heavy(tmp_path: Path) -> None:
    import subprocess
    import sys

    stored(mini().as_json())
    code = (
        "import sys; from slurmopt.slurm.cluster.facts import facts; from slurmopt.slurm.queue import queue; facts();"
        "print(sorted({'hydra', 'omegaconf', 'subprocess', 'concurrent', 'asyncio', 'torch'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_lock_is_held_by_one() -> None:
    with cache.lock("queue", 0) as mine, cache.lock("queue", 0.05) as second:
        assert mine
        assert not second
    with cache.lock("queue", 0) as mine:
        assert mine
