"""GPUs of AMD, Intel and Apple. Simulated: amdsmi (a module of that name), and the files of the kernel."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from slurmopt.job.monitor.sources import amd
from slurmopt.job.monitor.sources.other_gpus import OtherGpus, intel_gpus
from slurmopt.run_folder.series.series import NOT_ALLOWED, NOT_MEASURED, NOT_SUPPORTED


class SimulatedError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def get_error_code(self) -> int:
        return self.code


class Simulated:
    """Two MI300X: the second's table is what a test says."""

    def __init__(self) -> None:
        self.tables: list[dict[str, Any]] = [table(0), table(0)]
        self.fails: dict[str, int] = {}
        self.module = types.SimpleNamespace(
            AmdSmiException=SimulatedError, amdsmi_init=lambda: None, amdsmi_shut_down=lambda: None,
            amdsmi_get_processor_handles=lambda: [0, 1],
            amdsmi_get_gpu_enumeration_info=lambda handle: {"hip_id": 1 - handle, "hip_uuid": f"GPU-{handle}"},
            amdsmi_get_gpu_asic_info=lambda handle: {
                "market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942"
            },
            amdsmi_get_gpu_vram_usage=lambda handle: {"vram_total": 196592, "vram_used": 1024},
            amdsmi_get_power_cap_info=lambda handle: {"power_cap": 750000000},
            amdsmi_get_energy_count=lambda handle: {"counter_resolution": 15.259},
            amdsmi_get_gpu_metrics_info=self.metrics,
        )  # fmt: skip

    def metrics(self, handle: int) -> dict[str, Any]:
        if code := self.fails.get("metrics"):
            raise SimulatedError(code)
        return self.tables[handle]


def table(ticks: int, **changes: Any) -> dict[str, Any]:
    """The table of metrics after so many ticks of the firmware, busy at 80 %, with half of the time at its power
    limit."""
    return {
        "average_gfx_activity": 3, "average_umc_activity": 40, "current_socket_power": 600,
        "average_socket_power": "N/A",
        "temperature_hotspot": 71, "current_gfxclks": [2100, 2100, "N/A"], "current_uclk": 1300,
        "accumulation_counter": 1000 + ticks, "gfx_activity_acc": 80 * ticks, "mem_activity_acc": 30 * ticks,
        "ppt_residency_acc": ticks // 2, "socket_thm_residency_acc": 7, "vr_thm_residency_acc": ticks // 4,
        "hbm_thm_residency_acc": "N/A", "prochot_residency_acc": 0, "energy_accumulator": "N/A",
        "xgmi_read_data_acc": [10 * ticks, 10 * ticks, "N/A"], "xgmi_write_data_acc": [0, 0],
        "pcie_replay_count_acc": 4, **changes,
    }  # fmt: skip


@pytest.fixture
def smi(monkeypatch: pytest.MonkeyPatch) -> Simulated:
    simulated = Simulated()
    monkeypatch.setitem(sys.modules, "amdsmi", simulated.module)  # type: ignore[arg-type]
    return simulated


def opened(words: list[str] | None = None) -> amd.AmdSource:
    source = amd.AmdSource(words)
    source.open()
    return source


def test_simulated_amd_counters_are_differenced(smi: Simulated) -> None:
    source = opened()
    first = source.read()
    assert first["gpu1.util"] == 3  # the gauge; the counters follow
    assert "gpu1.throttle_power" not in {**first, **source.absent()}
    smi.tables[1] = table(1000)
    row = source.read()
    assert (row["gpu1.util"], row["gpu1.mem_util"]) == (80, 30)
    assert (row["gpu1.throttle_power"], row["gpu1.throttle_thermal"], row["gpu1.throttle_hw_thermal"]) == (0.5, 0.25, 0)
    assert (row["gpu1.memory"], row["gpu1.power"], row["gpu1.temperature"]) == (1024 * 2**20, 600, 71)
    assert row["gpu1.xgmi_rx"] > 0
    assert row["gpu1.xgmi_tx"] == 0
    assert source.absent()["gpu1.sm"] == NOT_SUPPORTED
    assert source.facts()["gpus"][0] == {
        "index": 0, "uuid": "GPU-0", "name": "AMD Instinct MI300X", "memory": 196592 * 2**20, "power_limit": 750.0,
        "mig": None, "architecture": "gfx942",
    }  # fmt: skip
    source.close()
    assert source.read() == {}


def test_simulated_amd_counters_that_fell_are_left_out(smi: Simulated) -> None:
    source = opened()
    smi.tables[1] = table(5000)
    source.read()
    smi.tables[1] = table(100)
    row = source.read()
    assert row["gpu1.util"] == 3
    assert "gpu1.throttle_power" not in row
    smi.tables[1] = table(200)
    assert source.read()["gpu1.throttle_power"] == 0.5


def test_simulated_amd_counters_of_another_unit_are_not_believed(smi: Simulated) -> None:
    source = opened()
    source.read()
    smi.tables[1] = table(1000, gfx_activity_acc=8_000_000)
    assert source.read()["gpu1.util"] == 3


def test_simulated_amd_energy_that_contradicts_the_power_is_not_believed(smi: Simulated) -> None:
    source = opened()
    smi.tables[1] = table(0, energy_accumulator=0)
    source.read()
    smi.tables[1] = table(1000, energy_accumulator=10**15)
    assert source.read()["gpu1.power"] == 600


def test_simulated_amd_without_the_newer_table(smi: Simulated) -> None:
    gone = {name: "N/A" for name in table(0) if name.endswith("_acc") or name == "accumulation_counter"}
    smi.tables[1] = table(0, **gone)
    source = opened()
    source.read()
    row = source.read()
    assert row["gpu1.util"] == 3
    assert source.absent()["gpu1.throttle_power"] == NOT_SUPPORTED


@pytest.mark.parametrize(("code", "why"), [(2, NOT_SUPPORTED), (10, NOT_ALLOWED), (30, NOT_MEASURED)])
def test_simulated_amd_errors_have_their_reason(smi: Simulated, code: int, why: str) -> None:
    source = opened(["0"])
    smi.fails["metrics"] = code
    assert source.read() == {"gpu1.memory": 2**30, "gpu1.memory_peak": 2**30}  # HIP's 0 is amdsmi's second
    assert source.absent()["gpu1.util"] == why


def test_amdsmi_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    source = opened(["0", "1"])
    assert source.read() == {}
    (event,) = source.events()
    assert event["note"] == source.facts()["gpu_error"]
    assert "does not have amdsmi" in event["note"]
    assert source.absent()["gpu1.util"] == NOT_MEASURED


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"HIP_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "4,5"}, ["5"]),
        ({"ROCR_VISIBLE_DEVICES": "4,5"}, ["4", "5"]),
        ({"SLURM_JOB_ID": "1"}, []),
        ({}, None),
    ],
)
def test_the_amd_gpus_of_a_job(environ: dict[str, str], words: list[str] | None) -> None:
    assert amd.granted(environ) == words


@pytest.fixture
def intel(tmp_path: Path) -> Path:
    for number, (vendor, device) in enumerate([("0x1a03", "0x2000"), ("0x8086", "0x0bd5"), ("0x8086", "0x0bda")]):
        folder = tmp_path / "sys/class/drm" / f"card{number}" / "device"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "device").write_text(device + "\n")
    (tmp_path / "sys/class/drm/card1-DP-1").mkdir()
    return tmp_path


def test_intel_gpus_are_named(intel: Path) -> None:
    names = ["Intel Data Center GPU Max 1550", "Intel Data Center GPU Max 1100"]
    assert intel_gpus({"ZE_AFFINITY_MASK": "0,1"}, intel) == names
    assert intel_gpus({"ZE_AFFINITY_MASK": "1.0,1.1"}, intel) == names[1:]
    assert intel_gpus({}, intel) == []
    source = OtherGpus("Intel", names)
    assert [gpu["name"] for gpu in source.facts()["gpus"]] == names
    assert (source.read(), source.absent()["gpu1.util"]) == ({}, NOT_SUPPORTED)


def test_beside_an_nvidia_gpu_intels_is_that_of_the_cpu(intel: Path) -> None:
    (intel / "dev").mkdir()
    (intel / "dev/nvidiactl").touch()
    assert intel_gpus({"ZE_AFFINITY_MASK": "0"}, intel) == []
