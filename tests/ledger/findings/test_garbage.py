"""Values that nothing can have measured make no finding and no error: what the readers of series and heartbeats let
through is any finite number."""

from __future__ import annotations

import random
import re
import shlex
from typing import Any

import pytest
from ledger.findings import healthy, wasteful
from ledger.findings.attempts import Attempt, attempt, event, evidence, set_gpu, set_node

from slurmopt.ledger.findings.diagnosis import diagnose_run
from slurmopt.ledger.findings.finding import Diagnosis

ODD = (-1.0, -1e99, 1e99, 1e12, 1e-300)
ABSURD = re.compile(r"(?<![\w.])-\d|\d{4,} %|e\+[1-9]\d|e-\d\d\d|\binf\b|\bnan\b|\d{12}")
SEEDS = range(25)


def diagnosed(*attempts: Attempt) -> Diagnosis:
    return diagnose_run([evidence(made) for made in attempts])


def text_of(diagnosis: Diagnosis) -> list[str]:
    return [line for item in diagnosis.findings for line in (item.summary, *item.evidence, item.change)]


def spoilt(values: dict[str, Any], noise: random.Random, share: float) -> None:
    """Replaces some numbers, and some within curves."""
    for name, value in values.items():
        if noise.random() >= share:
            continue
        if isinstance(value, list):
            values[name] = [noise.choice(ODD) if noise.random() < 0.3 else item for item in value]
        elif isinstance(value, float):
            values[name] = noise.choice(ODD)


@pytest.mark.parametrize("seed", SEEDS)
def test_absurd_values_are_in_no_finding(seed: int) -> None:
    noise = random.Random(seed)
    for name in noise.sample([*healthy.SCENARIOS, *wasteful.SCENARIOS], 6):
        found: Any = healthy.SCENARIOS[name]() if name in healthy.SCENARIOS else wasteful.SCENARIOS[name]()[0]
        for made in found:
            for series in made["series"]:
                spoilt(series["values"], noise, 0.2)
                for facts in (*series["facts"]["gpus"], series["facts"]):
                    spoilt(facts, noise, 0.1)
        diagnosis = diagnosed(*found)
        assert [line for line in text_of(diagnosis) if ABSURD.search(line)] == [], name
        assert all(item.cost is None or 0 <= item.cost <= diagnosis.hours + 1e-6 for item in diagnosis.findings)


@pytest.mark.parametrize("value", ODD)
def test_columns_of_garbage_make_no_finding_of_a_healthy_training(value: float) -> None:
    made = attempt()
    names = {name.partition(".")[2] for name in made["series"][0]["values"] if name.startswith("gpu")}
    if value > 1e-200:  # 1e-300 is a zero: a GPU that does nothing
        set_gpu(made, **dict.fromkeys(names, value))
    set_node(made, cpu_quota_throttled=value, memory=value, memory_peak=value, io_read=value, disk_read=value)
    assert diagnosed(made).findings == ()


def test_one_absurd_row_in_a_curve_changes_nothing() -> None:
    made = attempt(gpus=1)
    rows = 120
    set_gpu(made, throttle_thermal=[0.0] * (rows - 1) + [1e9], others=[1e12] + [0.0] * (rows - 1))
    set_node(made, cpu=[1.6] * (rows - 1) + [-1e9])
    assert diagnosed(made).findings == ()


def test_heartbeats_with_more_time_than_the_attempt_had_make_no_finding() -> None:
    made = attempt(gpus=2)
    made["series"] = []
    for rank in made["ranks"]:
        rank["spent"] |= {"checkpoint": 1e90, "input": 1e90}
        rank["counted"] |= {"ddp_backward": 1e95, "ddp_exposed": 1e95}
    made["ranks"][1]["counted"] |= {"ddp_exposed": 0.0}
    made["buckets"] = {"compute": 7000.0}
    assert diagnosed(made).findings == ()


def test_a_storm_of_odd_events_is_one_finding_at_the_most() -> None:
    made: Any = attempt(gpus=1, cause="infrastructure")
    odd = [
        {"event": "xid", "xid": xid, "gpu": gpu, "time": 1.0} for xid in (None, "x", -79, 1e99) for gpu in (0, "\x1b")
    ]
    made["series"][0]["events"] = [*odd, {"event": "oom_kill", "time": 1.0, "count": "many"}] * 20_000
    found = diagnosed(made).findings
    assert [item.kind for item in found] == ["out of memory"]
    assert "killed 1 processes" in found[0].evidence[0]


@pytest.mark.parametrize("name", ["n\x1b[2J", "n'; touch x; '", "$(touch x)", 'n"`touch x`'])
def test_the_name_of_a_node_is_no_command_of_the_shell(name: str) -> None:
    made: Any = attempt(gpus=1, cause="infrastructure")
    event(made, "node1", "xid", gpu=0, xid=79)
    made["series"][0]["node"] = name
    (found,) = diagnosed(made).findings
    assert len(shlex.split(found.change)) == 1
    assert not re.search(r"[$`]", found.change) or found.change.startswith("'")
