"""The source of NVIDIA GPUs, with the real nvidia-ml-py. NVML is simulated, by a library in C (see nvml_stub)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from job.monitor.nvml_stub import SCENARIOS, Process, Stub

from slurmopt.job.monitor.sources.nvidia.source import COLUMNS
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series.series import ABSENT, NOT_ALLOWED, NOT_MEASURED, NOT_SUPPORTED
from slurmopt.run_folder.series.series import read as read_series

pytestmark = pytest.mark.filterwarnings("error")
Nvml = Callable[..., Stub]
GPM = ("sm", "occupancy", "tensor", "dram", "fp64", "fp32", "fp16")
TIB = 2**40


def about(value: float) -> Any:
    """Rates are reckoned over a short time, by two clocks."""
    return pytest.approx(value, rel=0.05)


def two_readings(source: Process, seconds: float = 0.4) -> dict[str, float]:
    source.read()
    return source.read(seconds)


def wait_for_events(source: Process, word: str, count: int = 1) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    until = time.monotonic() + 20
    while time.monotonic() < until and len(found) < count:
        found += [event for event in source.events() if event["event"] == word]
        time.sleep(0.05)
    assert len(found) == count
    return found


def test_a_busy_gpu(nvml: Nvml) -> None:
    with nvml("h100").source() as source:
        first = source.read()
        row = source.read(0.4)
        assert source.absent() == {}
        gpus = source.facts()["gpus"]
    assert "gpu0.power" not in first  # a rate needs two readings
    assert first["gpu0.util"] == 98
    assert {
        "gpu0.util": 98, "gpu0.mem_util": 40, "gpu0.memory": 60 * 2**30, "gpu0.memory_peak": 60 * 2**30,
        "gpu0.temperature": 62, "gpu0.margin": 25, "gpu0.clock_sm": 1755, "gpu0.clock_mem": 2619,
        "gpu0.throttle_power": 0, "gpu0.throttle_brake": 0, "gpu0.remapped_rows": 3, "gpu0.others": 0,
    }.items() <= row.items()  # fmt: skip
    assert row["gpu1.power"] == about(650)
    assert row["gpu1.nvlink_tx"] == about(48e6 * 1024)
    assert row["gpu1.nvlink_rx"] == about(24e6 * 1024)
    assert row["gpu1.pcie_rx"] == about(1000 * 2**20)
    assert [row[f"gpu1.{name}"] for name in GPM] == pytest.approx([0.9, 0.33, 0.45, 0.6, 0, 0.12, 0.01], rel=1e-6)
    assert gpus[1] == {
        "index": 1, "uuid": "GPU-00000000-aaaa-0000-0000-000000000001", "name": "NVIDIA H100 80GB HBM3",
        "memory": 80 * 2**30 + 1559 * 2**20, "power_limit": 700.0, "mig": None, "architecture": "Hopper",
        "pci": "00000000:11:00.0",
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "hanging"])
def test_each_column_has_a_value_or_a_reason(nvml: Nvml, name: str) -> None:
    with nvml(name).source() as source:
        row = two_readings(source, 0.15)
        absent, numbers = source.absent(), [gpu["index"] for gpu in source.facts()["gpus"]]
    columns = {f"gpu{number}.{column}" for number in numbers for column in COLUMNS}
    assert columns
    assert row.keys() & absent.keys() == set()
    assert row.keys() | absent.keys() == columns
    assert set(absent.values()) <= set(ABSENT)


@pytest.mark.parametrize(
    ("name", "why", "columns"),
    [
        ("a100", NOT_SUPPORTED, GPM),
        ("a100", NOT_MEASURED, ("pcie_rx", "pcie_tx")),  # a counter of 32 bits, and no GPM
        ("mig", NOT_SUPPORTED, ("util", "mem_util", "power", "nvlink_rx", "remapped_rows")),
        ("mig", NOT_ALLOWED, ("others",)),
        ("denied", NOT_ALLOWED, (*GPM, "power", "throttle_power", "others")),
        ("old_driver", NOT_SUPPORTED, (*GPM, "pcie_rx", "remapped_rows")),
        ("rtx_blackwell", NOT_SUPPORTED, (*GPM, "nvlink_tx")),  # says that it has GPM
        ("half", NOT_SUPPORTED, ("util", "nvlink_tx", "others", *GPM)),
        ("no_driver", NOT_MEASURED, COLUMNS),
        ("mismatch", NOT_MEASURED, COLUMNS),
    ],
)
def test_why_a_column_is_absent(nvml: Nvml, name: str, why: str, columns: tuple[str, ...]) -> None:
    with nvml(name).source() as source:
        two_readings(source, 0.15)
        absent = source.absent()
    assert {column: absent.get(f"gpu0.{column}") for column in columns} == dict.fromkeys(columns, why)


def test_zero_and_three_kinds_of_nothing_are_four_values(nvml: Nvml) -> None:
    stub = nvml("h100", gpus=1)
    with stub.source() as source:
        stub.change("gpu0", util=0, mem_util=0)
        assert source.read()["gpu0.util"] == 0.0
        for code, why in ((999, NOT_MEASURED), (4, NOT_ALLOWED)):
            stub.change("gpu0", errors={"nvmlDeviceGetUtilizationRates": code})
            assert "gpu0.util" not in source.read()
            assert source.absent()["gpu0.util"] == why
    with nvml("h100", gpus=1, gpu={"util": None}).source() as source:
        source.read()
        assert source.absent()["gpu0.util"] == NOT_SUPPORTED


def test_what_failed_once_comes_back(nvml: Nvml) -> None:
    stub = nvml("h100", gpus=1, gpu0={"errors": {"nvmlDeviceGetUtilizationRates": 10}})
    with stub.source() as source:
        source.read()
        assert source.absent() | {"gpu0.util": NOT_MEASURED} == source.absent()
        stub.change("gpu0", errors={"nvmlDeviceGetUtilizationRates": None})
        assert source.read()["gpu0.util"] == 98
        assert "gpu0.util" not in source.absent()


def test_a_counter_that_was_reset_is_left_out_once(nvml: Nvml) -> None:
    stub = nvml("energy_reset")
    with stub.source() as source:
        assert two_readings(source)["gpu0.power"] == about(650)
        stub.change("gpu0", fields={"83": [3, 0, 650000]})
        row = source.read(0.2)
        assert "gpu0.power" not in row
        assert "gpu0.power" not in source.absent()
        assert row["gpu1.power"] == about(650)
        assert source.read(0.4)["gpu0.power"] == about(650)


def test_throttling_is_told_by_cause(nvml: Nvml) -> None:
    with nvml("throttled").source() as source:
        row = two_readings(source)
    causes = ("power", "sync", "thermal", "hw_thermal", "brake")
    assert [row[f"gpu0.throttle_{cause}"] for cause in causes] == [about(0.8), 0, 0, 0, 0]
    assert [row[f"gpu1.throttle_{cause}"] for cause in causes] == [0, 0, about(0.3), about(0.1), about(0.1)]
    assert row["gpu1.margin"] == -1


def test_a_share_is_one_at_most(nvml: Nvml) -> None:
    """The driver adds to some counters in steps, so that an interval may have more than its length."""
    with nvml("h100", gpus=1, gpu={"fields": {"74": [3, 0, 1.02e9]}}).source() as source:
        assert two_readings(source)["gpu0.throttle_power"] == 1.0


@pytest.mark.parametrize(
    ("driver", "fields", "shares"),
    [
        ("580.82.07", {"251": [1, 1, 9e9], "269": [3, 0, 3e8], "271": [3, 0, 1e8]}, (0.3, 0.1)),
        ("580.65.06", {"251": [3, 0, 3e8], "253": [3, 0, 1e8], "269": [1, 1, 9e9], "271": [1, 1, 9e9]}, (0.3, 0.1)),
        ("575.57.08", {"251": [3, 0, 3e8], "253": [3, 0, 1e8], "269": None, "271": None}, (0.3, 0.1)),
        ("570.172.08", {"75": [3, 0, 3e8], "251": [1, 1, 9e9], "253": [1, 1, 9e9], "271": None}, (0.3, 1.0)),
    ],
)
def test_the_numbers_of_fields_are_those_of_the_driver(
    nvml: Nvml, driver: str, fields: dict[str, Any], shares: tuple[float, float]
) -> None:
    """NVML numbered the counters of heat and brake anew in 580.82; elsewhere those numbers mean power smoothing. Where
    the driver counts no braking, it is told as it is at the reading."""
    with nvml("h100", gpus=1, driver=driver, gpu={"fields": fields, "reasons": 0x80}).source() as source:
        row = two_readings(source)
    assert (row["gpu0.throttle_thermal"], row["gpu0.throttle_brake"]) == tuple(map(about, shares))


def test_counters_of_a_slow_call_wait_for_the_next(nvml: Nvml) -> None:
    """It is unknown when the driver took them: a rate might be anything."""
    stub = nvml("h100", gpus=1, gpu0={"delays": {"nvmlDeviceGetFieldValues": "900 2 1"}})
    with stub.source() as source:
        row = two_readings(source)
        assert "gpu0.power" not in row
        assert row["gpu0.util"] == 98
        assert source.absent()["gpu0.power"] == NOT_MEASURED
        assert source.read(0.2)["gpu0.power"] == about(650)
        assert source.absent() == {}


def test_a_driver_that_hangs_stops_neither_events_nor_the_end(nvml: Nvml) -> None:
    stub = nvml("hanging", gpu1={"event": "0.3 8 79"})
    with stub.source() as source:
        two_readings(source, 0.2)
        assert source.absent() == {}
        source.ask("background")  # the third reading, of a minute
        assert wait_for_events(source, "xid")[0]["xid"] == 79
        assert source.facts()["gpus"]
        assert source.ask("close")["seconds"] < 30


def test_xid_errors_of_each_gpu(nvml: Nvml) -> None:
    with nvml("xid", gpu0={"event": "0.1 8 31"}, gpu1={"event": "0.2 8 79"}).source() as source:
        source.read()
        first, second = wait_for_events(source, "xid", 2)
        source.close()
    assert [(event["gpu"], event["xid"]) for event in (first, second)] == [(0, 31), (1, 79)]
    assert abs(first["time"] - time.time()) < 60


def test_a_gpu_that_lacks_some_events_has_the_others(nvml: Nvml) -> None:
    """NVML registers none of them where one is not supported."""
    with nvml("xid", gpu={"event_types": 8}, gpu0={"event": "0.1 8 31"}).source() as source:
        source.read()
        assert wait_for_events(source, "xid")[0]["xid"] == 31


def test_events_that_are_not_allowed_are_one_note(nvml: Nvml) -> None:
    with nvml("denied").source() as source:
        source.read()
        notes = [event["note"] for event in source.events() if event["event"] == "note"]
    assert notes == ["XID errors of the GPUs: not allowed"]


def test_a_gpu_that_falls_off_the_bus(nvml: Nvml) -> None:
    stub = nvml("lost", gpu1={"lost": 0.5, "event": "0.5 8 79"})
    with stub.source() as source:
        assert source.read()["gpu1.util"] == 98
        row = source.read(0.6)
        assert row["gpu0.util"] == 98
        assert not any(name.startswith("gpu1.") for name in row)
        assert {why for name, why in source.absent().items() if name.startswith("gpu1.")} == {NOT_MEASURED}
        source.read()
        events = source.events()
        assert [event["gpu"] for event in events if event["event"] == "gpu_lost"] == [1]
        assert source.read()["gpu0.power"] > 0


def test_a_driver_that_is_replaced_is_told_once_and_may_come_back(nvml: Nvml) -> None:
    stub = nvml("h100", gpus=1)
    with stub.source() as source:
        two_readings(source, 0.2)
        stub.change("gpu0", lost=0, lost_error=18)
        assert (source.read(), source.read()) == ({}, {})
        assert set(source.absent()) == {f"gpu0.{column}" for column in COLUMNS}
        assert set(source.absent().values()) == {NOT_MEASURED}
        (event,) = source.events()
        assert (event["event"], event["gpu"]) == ("note", 0)
        assert event["note"].startswith("NVML has no value of this GPU: RM has detected an NVML/RM version mismatch")
        stub.change("gpu0", lost=None)
        row = source.read(0.2)
        assert (row["gpu0.power"], row["gpu0.util"], row["gpu0.sm"]) == (about(650), 98, pytest.approx(0.9))


def test_the_mean_of_the_whole_attempt(nvml: Nvml) -> None:
    stub = nvml("h100", gpus=1, gpu={"gpm": {"2": 100}})
    with stub.source() as source:
        source.read()
        assert source.read(0.5)["gpu0.sm"] == pytest.approx(1)
        stub.change("gpu0", gpm={"2": 20})
        source.read()  # the stub reads its file again at a call
        assert source.read(0.5)["gpu0.sm"] == pytest.approx(0.2, abs=0.1)
        (whole,) = source.close()
    assert (whole["event"], whole["gpu"]) == ("whole", 0)
    assert whole["seconds"] >= 1
    assert 0.3 < whole["sm"] < 0.9
    assert whole["tensor"] == pytest.approx(0.45)


def test_a_reading_right_after_another_has_no_gpm(nvml: Nvml) -> None:
    """Within 100 ms the counters may not have been refreshed."""
    with nvml("h100", gpus=1).source() as source:
        row = two_readings(source, 0.0)
        assert "gpu0.sm" not in row
        assert "gpu0.sm" not in source.absent()
        assert source.read(0.2)["gpu0.sm"] == pytest.approx(0.9)


def test_gpm_tells_the_pcie_that_its_counters_cannot(nvml: Nvml) -> None:
    with nvml("h100", gpus=1, gpu={"fields": {"197": [1, 0, 2e9], "198": [1, 0, 1e9]}}).source() as source:
        assert two_readings(source)["gpu0.pcie_tx"] == about(2000 * 2**20)
    with nvml("h100", gpus=1, gpu={"gpm": None}).source() as source:
        assert two_readings(source)["gpu0.pcie_tx"] == about(2e9)
    with nvml("h100", gpus=1, gpu={"gpm": None, "fields": {"197": [3, 1e9, 1e9]}}).source() as source:
        assert "gpu0.pcie_tx" not in two_readings(source)  # below 4 GiB, a counter of 64 bits looks like one of 32
        assert source.absent()["gpu0.pcie_tx"] == NOT_MEASURED


def test_gpm_that_tells_no_activity_is_not_used(nvml: Nvml) -> None:
    """RTX Blackwell says that it supports GPM; its traffic by GPM is 1500 MiB/s here, by the counters 2 GB/s."""
    with nvml("rtx_blackwell").source() as source:
        assert two_readings(source)["gpu0.pcie_tx"] == about(2e9)
        assert source.close() == []


def test_nvlink_counted_by_link(nvml: Nvml) -> None:
    with nvml("b200", gpus=1).source() as source:
        source.read()
        source.read(0.2)
        row = source.read(0.4)
    assert (row["gpu0.nvlink_tx"], row["gpu0.nvlink_rx"]) == (about(18e9), about(36e9))


def test_power_without_an_energy_counter_is_a_gauge(nvml: Nvml) -> None:
    with nvml("h100", gpus=1, gpu={"fields": {"83": {"error": 3}}}).source() as source:
        assert source.read()["gpu0.power"] == 640
        assert "gpu0.power" not in source.absent()


def test_an_old_driver(nvml: Nvml) -> None:
    with nvml("old_driver").source() as source:
        row = two_readings(source)
        assert source.facts()["driver"] == "470.57.02"
    assert row["gpu0.memory"] == 20 * 2**30 + 500 * 2**20  # the older call does not tell the reserved memory apart
    assert (row["gpu0.temperature"], row["gpu0.margin"]) == (62, 25)
    assert row["gpu0.power"] == about(650)


def test_memory_use_of_the_source(nvml: Nvml) -> None:
    """The sampler may have 40 MB in all, and half of that is nvidia-ml-py's."""
    with nvml("b200").source() as source:
        two_readings(source, 0.15)
        with open(f"/proc/{source.pid}/status", encoding="ascii") as file:
            resident = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
    assert resident < 40 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h100", "denied", "no_driver", "lost", "hanging"])
def test_the_sampler_writes_what_the_source_reads(nvml: Nvml, tmp_path: Path, name: str) -> None:
    """The whole sampler, as a rank starts it, and the series that the login side reads."""
    folder = RunFolder(tmp_path / "runs" / "test" / "one")
    folder.make()
    here = {"folder": str(folder.path), "attempt": 0, "node": "node1", "pid": os.getpid(), "pid_started": None,
            "ranks": [], "every": 0.5, "sources": ["gpu"]}  # fmt: skip
    stub = nvml(name, gpu1={"event": "0.5 8 79"})
    environment = {**os.environ, **stub.environment}
    command = [sys.executable, "-m", "slurmopt.job.monitor", json.dumps(here)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, cwd="/") as sampler:
        time.sleep(2.5)  # of readings, each half a second
        assert sampler.stdin is not None
        sampler.stdin.write(b"q")
        sampler.stdin.close()
        assert sampler.wait(20) == 0
    series = read_series(folder.series(0, "node1"), folder.recent_series(0, "node1"))
    assert series is not None
    assert {event["event"] for event in series.events} <= {"xid", "gpu_lost", "note", "whole", "others", "slow"}
    if name == "no_driver":
        assert "Driver Not Loaded" in series.facts["gpu_error"]
        assert series.absent["gpu0.util"] == NOT_MEASURED
        return
    assert series.facts["gpus"][0]["index"] == 0
    if name == "h100":
        assert [event["gpu"] for event in series.events if event["event"] == "whole"] == [0, 1]
    assert series.mean("gpu0.memory") or name == "hanging"
    for column in GPM:
        assert (series.mean(f"gpu0.{column}") is None) == (series.absent.get(f"gpu0.{column}") is not None)
    if name in ("h100", "lost"):
        assert series.mean("gpu0.power") == about(650)
        assert [event["xid"] for event in series.events if event["event"] == "xid"] == [79]
