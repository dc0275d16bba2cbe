"""The evidence from records: which intervals count, what belongs to which rank, and files that somebody has damaged."""

from __future__ import annotations

from typing import Any

import pytest

from slurmopt.ledger.findings import robust
from slurmopt.ledger.findings.config_facts import config_facts
from slurmopt.ledger.findings.evidence import AttemptEvidence
from slurmopt.ledger.findings.records import evidence_of
from slurmopt.ledger.record import AttemptRecord, RankRecord
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.series.series import Series

START = 1000.0


def made(series: Series, gpus: Any = ("GPU-b",), hang: Any = None, **rank: Any) -> AttemptEvidence:
    times = {"first_step": 0, "first_step_time": START + 100, "step": 400, "step_time": START + 300}
    record = AttemptRecord(
        0, START, START + 300, {"n": 2.0}, (RankRecord(0, "n", 1.0, START, START + 300, True, {}, **(times | rank)),)
    )
    beat = Heartbeat(0, 1, "n", 1, gpus=gpus if not isinstance(gpus, tuple) else list(gpus))
    return evidence_of(record, {0: beat}, [series], hang=hang)


def series(**columns: list[float | None]) -> Series:
    rows = len(next(iter(columns.values())))
    facts = {"gpus": [{"index": 0, "uuid": "GPU-a"}, {"index": 1, "uuid": "GPU-b"}]}
    return Series(
        "n", 0, [START + 100 * (row + 1) for row in range(rows)], [100.0] * rows,
        {name.replace("__", "."): values for name, values in columns.items()}, facts=facts,
    )  # fmt: skip


def test_means_leave_out_what_was_before_the_first_step() -> None:
    found = made(series(gpu1__sm=[0.0, 0.8, 0.6]))
    assert found.devices[1].means["sm"] == pytest.approx(0.7)
    assert found.window == 200


def test_means_leave_out_evaluations() -> None:
    shares = {"rank0__running.share": [0.0, 1.0, 0.0], "rank0__evaluation.share": [0.0, 0.0, 1.0]}
    found = made(series(gpu1__sm=[0.0, 0.8, 0.1], **shares))
    assert found.devices[1].means["sm"] == pytest.approx(0.8)


def test_what_a_start_reads_is_none_of_the_loaders() -> None:
    rows = series(node__io_read=[9e7, 9e7, 4e7, 0.0, 1e3, 0.0], node__cpu=[1.0, 1.0, 1.0, 0.1, 0.1, 0.1])
    rows.times, rows.seconds = [START + 50 * (row + 1) for row in range(6)], [50.0] * 6
    means = made(rows).nodes[0].means
    assert means["io_read"] < 1e4
    assert means["cpu"] == pytest.approx(0.325), "of CPUs the mean counts"


@pytest.mark.parametrize(("intervals", "told"), [(2, False), (3, True)])
def test_what_is_read_is_told_by_three_intervals_at_least(intervals: int, told: bool) -> None:
    rows = series(node__io_read=[4e7] * intervals, node__cpu=[0.1] * intervals)
    rows.times, rows.seconds = [START + 110 + 50 * row for row in range(intervals)], [50.0] * intervals
    assert ("io_read" in made(rows).nodes[0].means) == told


def test_what_was_not_measured_is_no_zero() -> None:
    found = made(series(gpu1__sm=[None, None, 0.6], gpu1__dram=[None, None, None]))
    assert found.devices[1].means == {"sm": pytest.approx(0.6)}


def test_ranks_find_their_gpus_by_uuid() -> None:
    found = made(series(gpu0__util=[0.0, 0.0, 0.0]))
    assert found.ranks[0].devices == (1,)
    assert [device.ranks for device in found.devices] == [(), (0,)]


def test_gpus_of_unknown_ranks_are_not_called_unused() -> None:
    assert [device.ranks for device in made(series(gpu0__util=[0.0] * 3), gpus=()).devices] == [None, None]


def test_rates_count_the_time_of_steps_alone() -> None:
    shares = {"rank0__running.share": [0.5, 1.0, 0.5], "rank0__evaluation.share": [0.5, 0.0, 0.5]}
    found = made(series(rank0__steps=[2.0, 4.0, 2.0], **shares))
    assert [rate for _, rate in found.rates] == [4.0, 4.0]


def test_interfaces_of_a_kind_are_added_up() -> None:
    found = made(series(**{"ib__mlx5_0.tx": [1e9] * 3, "ib__mlx5_1.tx": [2e9] * 3}))
    assert found.nodes[0].means["ib.tx"] == pytest.approx(3e9)


def test_ddp_timings_are_the_medians_of_the_series() -> None:
    found = made(series(rank0__ddp_backward=[9.0, 0.1, 0.3], rank0__ddp_exposed=[9.0, 0.02, 0.04]))
    assert (found.ranks[0].compute, found.ranks[0].exposed) == (pytest.approx(0.2), pytest.approx(0.03))


def test_a_hang_without_phase_takes_what_the_rank_did() -> None:
    found = made(series(gpu0__util=[0.0]), hang={"rank": 0, "seconds": 60}, activity="input")
    assert found.hang is not None
    assert found.hang.phase == "input"


@pytest.mark.parametrize("bad", [None, "x", 7, {"a": 1}, [None], [{"index": {}}]])
def test_fields_of_wrong_types_count_as_missing(bad: Any) -> None:
    odd = series(gpu0__util=[1.0, 2.0, 3.0])
    odd.facts = {"gpus": bad, "cpus": bad, "memory_limit": bad, "host_memory": bad}
    odd.events = [{"event": "xid", "time": 1, "gpu": bad, "xid": bad}]
    hang = {"rank": bad, "node": bad, "step": bad, "seconds": bad, "silent": bad}
    found = made(odd, gpus=bad, hang=hang)
    assert found.nodes[0].cpus in (None, 7)


@pytest.mark.parametrize("bad", [None, "x", [], {"every": []}, -1, True])
def test_odd_configs_have_facts_too(bad: Any) -> None:
    groups = ("resources", "checkpoint", "environment", "sweep")
    config_facts(dict.fromkeys(groups, bad))
    facts = config_facts({"resources": dict.fromkeys(("memory", "time", "nodes", "exclude", "cpus_per_task"), bad)})
    assert facts.memory is None or facts.memory > 0


def test_facts_of_a_config() -> None:
    facts = config_facts(
        {
            "resources": {"memory": "64GB", "time": "04:00:00", "cpus_per_task": 8},
            "checkpoint": {"scratch": {"path": None}, "shared": {"every": "10min"}, "s3": {"url": None}},
        }
    )
    assert (facts.memory, facts.time, facts.cpus_per_task) == (64 << 30, 4 * 3600, 8)
    assert facts.checkpoint == {"shared": "10min"}


def test_a_wild_value_does_not_change_a_slope() -> None:
    points = [(float(x), 2.0 * x) for x in range(30)]
    points[7] = (7.0, 1e6)
    middle, low, high = robust.slope(points)
    assert middle == pytest.approx(2.0)
    assert 1.9 < low <= middle <= high < 2.1


def test_the_slope_of_noise_may_be_zero() -> None:
    points = [(float(x), float((x * 7919) % 101)) for x in range(60)]
    _, low, high = robust.slope(points)
    assert low < 0 < high
