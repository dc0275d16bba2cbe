"""Which storage checkpoints need: FSx for Lustre by capacity and throughput, S3 by lifetime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

from slurmopt.planning.storage import buckets, class_by_lifetime, file_systems

TIB = 2**40


def test_throughput_is_bought_with_capacity() -> None:
    """10 GB/s and 20 TiB: at 125 MB/s a TiB 80 TiB, at 1000 only 10, so that the room decides: 21.6 in steps of 2.4."""
    found = {each.name: (each.tib, each.limit) for each in file_systems(20 * TIB, 10e9, {})}
    assert found == {
        "fsx-persistent-125": (81.6, "throughput"),
        "fsx-scratch-2": (100.8, "throughput"),
        "fsx-persistent-250": (40.8, "throughput"),
        "fsx-persistent-500": (21.6, "capacity"),
        "fsx-persistent-1000": (21.6, "capacity"),
    }


@pytest.mark.parametrize(("tib", "size"), [(0.1, 1.2), (1.2, 1.2), (1.3, 2.4), (2.41, 4.8), (4.8, 4.8), (240, 240)])
def test_sizes_come_in_steps(tib: float, size: float) -> None:
    assert {each.tib for each in file_systems(tib * TIB, 1, {})} == {size}


def test_the_cheapest_is_first_and_one_without_a_rate_last() -> None:
    rates = {"fsx-persistent-125": 0.145, "fsx-persistent-1000": 0.6}
    found = file_systems(1.2 * TIB, 4.5e9, rates)  # 36 TiB at 125 MB/s, 4.8 at 1000
    assert [each.name for each in found[:2]] == ["fsx-persistent-1000", "fsx-persistent-125"]
    assert found[0].a_month == pytest.approx(0.6 * 4.8 * TIB / 1e9)
    assert found[2].a_month is None


def test_a_class_bills_at_least_its_days() -> None:
    """A TB for 7 days: 0.023 for 7 days is less than 0.0125 for 30; for 60 days it is not."""
    rates = {"s3-standard": 0.023, "s3-standard-ia": 0.0125}
    week = buckets(1e12, 7, rates)
    assert [each.name for each in week[:2]] == ["s3-standard", "s3-standard-ia"]
    assert week[0].cost == pytest.approx(23 * 7 / (730 / 24))
    assert week[1].cost == pytest.approx(12.5 * 30 / (730 / 24))
    assert buckets(1e12, 60, rates)[0].name == "s3-standard-ia"
    assert [class_by_lifetime(days) for days in (7, 30, 89, 90)] == [
        "s3-standard",
        "s3-standard-ia",
        "s3-standard-ia",
        "s3-glacier-ir",
    ]


EXPERIMENT = """# @package _global_
task: {command: [python, train.py]}
launch: {backend: local}
resources: {nodes: 2, gpus_per_node: 8, gpu_type: h100}
plan: {model: llama-8b, network: 3200, sequence: 4096, strategy: fsdp}
"""


def storage(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (place / "conf" / "experiment").mkdir(parents=True, exist_ok=True)
    (place / "conf" / "experiment" / "mine.yaml").write_text(EXPERIMENT)
    (place / "train.py").write_text("")
    argv = [sys.executable, "-m", "slurmopt", "plan", "storage", "+experiment=mine", *words]
    return subprocess.run(argv, cwd=place, capture_output=True, text=True, timeout=180)


def test_the_storage_of_an_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """12 bytes for each of 8.03e9 parameters: 96.4 GB in 20 s are 4.8 GB/s, and 3 copies need 289 GB of room."""
    done = storage(tmp_path, "--json", "--within", "20s")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = data_of(done.stdout)
    assert found["checkpoint"] == {"size": 12 * 8_030_261_248, "copies": 3, "nodes": 2, "node_bytes": 6 * 8_030_261_248}
    assert found["needs"]["throughput"] == pytest.approx(4.818e9, rel=1e-3)
    assert found["file_systems"][0]["name"] == "fsx-persistent-1000"
    assert (found["file_systems"][0]["tib"], found["file_systems"][0]["a_month"]) == (7.2, None)
    (tmp_path / "prices.yaml").write_text(
        "currency: EUR\nprices: []\nstorage:\n"
        "- {name: fsx-scratch-2, per_gb_month: 0.14, date: 2026-01-01, source: list}\n"
        "- {name: s3-standard, per_gb_month: 0.02, date: 2026-01-01, source: list}\n"
    )
    monkeypatch.setenv("SLURMOPT_PRICES", str(tmp_path / "prices.yaml"))
    shown = storage(tmp_path, "--within", "20s", "--days", "365").stdout
    assert "take      fsx-scratch-2 of 50.4 TiB, the only one with a rate; s3-standard for 365 days" in shown
    assert "EUR A MONTH" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--within", "soon"), "plan storage: --within: not a time: 'soon'"),
        (("--within", "0"), "plan storage: --within: not a time: '0'; valid are 1 second"),
        (("--data", "much"), "plan storage: --data: not a size: 'much'"),
        (("--days", "nan"), "plan storage: --days 'nan' is not valid; valid: above 0, to 36,500"),
        (("--days", "-1"), "plan storage: --days '-1' is not valid"),
        (("plan.model=null",), "plan.model: is not set"),
    ],
)
def test_what_cannot_be_sized_is_told_in_one_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = storage(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
