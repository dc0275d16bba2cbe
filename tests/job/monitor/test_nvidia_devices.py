"""Which GPUs the source measures, and what it says where it cannot. NVML is simulated (see nvml_stub)."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from job.monitor.nvml_stub import Stub

from slurmopt.job.monitor.sources.nvidia.devices import granted
from slurmopt.job.monitor.sources.nvidia.processes import job_in
from slurmopt.run_folder.series.series import NOT_MEASURED

Nvml = Callable[..., Stub]


def indices(stub: Stub, **environment: str) -> list[int]:
    with stub.source(**environment) as source:
        source.read()
        return [gpu["index"] for gpu in source.facts()["gpus"]]


def error(stub: Stub, *before: str, **environment: str) -> str:
    """Why nothing is measured; told in the facts and in one event, and the source still answers."""
    with stub.source(*before, **environment) as source:
        assert source.read() == {}
        assert source.read() == {}
        events, facts, absent = source.events(), source.facts(), source.absent()
        source.close()
    assert [event["note"] for event in events] == [facts["gpu_error"]]
    assert "\n" not in facts["gpu_error"]
    assert set(absent.values()) == {NOT_MEASURED}
    line: str = facts["gpu_error"]
    return line


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("0,1,2,3", [0, 1, 2, 3]),
        ("2", [2]),
        ("3,1", [1, 3]),
        ("GPU-00000000-bbbb-0000-0000-000000000002", [2]),
        ("GPU-00000000-bbbb-0000-0000-000000000001,0", [0, 1]),
    ],
)
def test_only_the_gpus_of_the_job(nvml: Nvml, words: str, found: list[int]) -> None:
    assert indices(nvml("a100"), CUDA_VISIBLE_DEVICES=words) == found


def test_a_cgroup_hides_the_others(nvml: Nvml) -> None:
    """CUDA counts those that are left from 0 on; NVML's own number stays."""
    hidden = {"errors": {"nvmlDeviceGetHandleByIndex_v2": 4}}
    stub = nvml("a100", gpu0=hidden, gpu1=hidden)
    assert indices(stub, CUDA_VISIBLE_DEVICES="0,1") == [2, 3]
    assert indices(stub, CUDA_VISIBLE_DEVICES="2,3") == [2, 3]  # where Slurm numbers them as the node does


def test_a_gpu_that_is_not_there_is_one_note(nvml: Nvml) -> None:
    with nvml("h100").source(CUDA_VISIBLE_DEVICES="0,7,GPU-gone") as source:
        source.read()
        notes = [event["note"] for event in source.events()]
        assert [gpu["index"] for gpu in source.facts()["gpus"]] == [0]
    assert notes == [
        f"no GPU that NVML shows is {word}, of CUDA_VISIBLE_DEVICES: it is not measured" for word in ("7", "GPU-gone")
    ]


def test_numbers_among_gpus_of_different_kinds_are_doubtful(nvml: Nvml) -> None:
    stub = nvml("h100", gpu1={"name": "NVIDIA A40"})
    with stub.source(CUDA_VISIBLE_DEVICES="1") as source:
        source.read()
        (note,) = source.events()
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in note["note"]
    with stub.source(CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID") as source:
        source.read()
        assert source.events() == []


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, ["0", "1"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"SLURM_JOB_ID": "7"}, []),
        ({"SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "2"}, ["0", "1"]),
        ({"ROCR_VISIBLE_DEVICES": "0"}, []),
    ],
)
def test_what_the_environment_grants(environ: dict[str, str], words: list[str]) -> None:
    assert granted(environ) == words


MIG = "MIG-0000000{}-cccc-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("words", "memory"),
    [
        (f"{MIG.format(0)},{MIG.format(1)}", [2, 4]),
        (MIG.format(2), [6]),
        ("MIG-GPU-00000000-aaaa-0000-0000-000000000000/8/0", [4]),
        ("0", [2, 4, 6]),  # those that its cgroup shows
    ],
)
def test_slices_of_a_gpu(nvml: Nvml, words: str, memory: list[int]) -> None:
    with nvml("mig").source(CUDA_VISIBLE_DEVICES=words) as source:
        row = source.read()
        row |= source.read(0.2)
        gpus = source.facts()["gpus"]
    assert [row[f"gpu{number}.memory"] / 2**30 for number in range(len(memory))] == memory
    assert [gpu["index"] for gpu in gpus] == list(range(len(memory)))
    assert {gpu["name"] for gpu in gpus} == {"NVIDIA H100 80GB HBM3 MIG 1g.10gb"}
    assert gpus[0]["mig"] == {"gpu": 0, "instance": 6 + memory[0] // 2, "part": 0}
    assert row["gpu0.sm"] == pytest.approx(0.5 - 0.1 * (memory[0] // 2 - 1))
    assert row["gpu0.throttle_power"] == 0  # a slice is throttled with its GPU


def test_an_xid_of_anothers_slice_is_not_ours(nvml: Nvml) -> None:
    stub = nvml("mig", gpu0={"event": ["0.1 8 31 9", "0.2 8 13 7"]})
    with stub.source(CUDA_VISIBLE_DEVICES=MIG.format(0)) as source:
        source.read()
        source.read(2.0)
        assert [event["xid"] for event in source.events()] == [13]


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("version = 1\n", "is another one: it has no nvmlInit. Remove or rename it"),
        ("def nvmlInit(:\n", "cannot be imported: SyntaxError: "),
        ("raise RuntimeError('two\\nlines')\n", "cannot be imported: RuntimeError: two\\nlines"),
        ("raise ImportError('none')\n", "this Python does not have nvidia-ml-py (pip install 'slurmopt[gpu]')"),
    ],
)
def test_another_module_of_that_name(nvml: Nvml, tmp_path: Path, module: str, said: str) -> None:
    (tmp_path / "pynvml.py").write_text(module)
    assert said in error(nvml("h100"), PYTHONPATH=str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nvml": {"init": 9}}, "Driver Not Loaded: load the driver"),
        ({"nvml": {"init": 18}}, "the driver was updated without a reboot"),
        ({"nvml": {"init": 4}}, "this user may not open /dev/nvidia*"),
        ({"nvml": {"init": 999}}, "NVML does not start: Unknown Error"),
        ({"without": ["nvmlInitWithFlags"]}, "the libnvidia-ml.so.1 of this node is incomplete"),
        ({"gpus": 0}, "NVML shows none of those that this job was given"),
    ],
)
def test_a_library_that_does_not_start(nvml: Nvml, changes: dict[str, Any], said: str) -> None:
    assert said in error(nvml("h100", **changes), CUDA_VISIBLE_DEVICES="0,1")


def test_no_library_at_all(nvml: Nvml) -> None:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        assert "there is no libnvidia-ml.so.1" in error(nvml("h100"), LD_LIBRARY_PATH="")
    else:
        pytest.skip("this machine has a real NVML")


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process of another user."""
    if os.getuid() != 0:
        yield 1
        return
    with subprocess.Popen(["sleep", "100"], user=65534) as process:
        yield process.pid
        process.kill()


def test_processes_of_others(nvml: Nvml, stranger: int) -> None:
    if os.readlink("/proc/self/ns/pid") != "pid:[4026531836]":
        pytest.skip("this container has process ids of its own")
    stub = nvml("foreign", gpu1={"processes": f"{os.getpid()}:1024 {stranger}:1073741824"})
    with stub.source() as source:
        row = source.read()
        assert (row["gpu0.others"], row["gpu1.others"]) == (0, 1)
        (event,) = source.events()
        assert (event["event"], event["gpu"], event["count"]) == ("others", 1, 1)
        stub.change("gpu1", processes=f"{os.getpid()}:1024")
        assert source.read()["gpu1.others"] == 0
        stub.change("gpu1", processes=f"{stranger}:1024")
        assert source.read()["gpu1.others"] == 1
        assert source.events() == []  # told once


def test_process_ids_of_a_container_tell_nothing(nvml: Nvml) -> None:
    if os.getuid() != 0 or subprocess.run(["unshare", "--pid", "--fork", "true"], check=False).returncode:
        pytest.skip("needs root")
    with nvml("foreign").source("unshare", "--pid", "--fork", "--mount-proc") as source:
        assert "gpu1.others" not in source.read()
        assert source.absent()["gpu1.others"] == NOT_MEASURED


@pytest.mark.parametrize(
    ("cgroups", "job"),
    [
        ("0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n", "job_123"),
        ("5:freezer:/slurm/uid_1000/job_123/step_batch\n", "job_123"),
        ("0::/system.slice/node1_slurmstepd.scope/s6A1B2C3/step_0/user/task_0\n", "s6A1B2C3"),
        ("0::/user.slice/user-1000.slice/session-2.scope\n", None),
    ],
)
def test_the_job_of_a_process(cgroups: str, job: str | None) -> None:
    assert job_in(cgroups) == job


def show(stub: Stub, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "slurmopt.job.monitor.sources.nvidia", *words],
        capture_output=True, text=True, check=False, env={**os.environ, **stub.environment, **environment}, cwd="/",
    )  # fmt: skip


def test_the_command_shows_values_reasons_and_costs(nvml: Nvml) -> None:
    shown = show(nvml("denied", gpus=1), "--seconds", "0.2")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["gpu0.util", "98"] in lines
    assert ["gpu0.power", "not", "allowed"] in lines
    assert any(line[:2] == ["nvmlDeviceGetFieldValues", "1"] and float(line[2]) >= 0 for line in lines if len(line) > 2)
    assert ["gpu0", "269", "0.269"] in lines  # the stub's latency of a field is its number in microseconds


@pytest.mark.parametrize(
    ("words", "environment", "status", "said"),
    [
        ((), {"CUDA_VISIBLE_DEVICES": ""}, 1, "slurmopt: this process was given no NVIDIA GPU\n"),
        (("--seconds", "0"), {}, 2, "--seconds: 0 is not valid; valid is 0.1 to 3600\n"),
    ],
)
def test_the_command_without_gpus(
    nvml: Nvml, words: tuple[str, ...], environment: dict[str, str], status: int, said: str
) -> None:
    shown = show(nvml("h100"), *words, **environment)
    assert (shown.returncode, shown.stdout) == (status, "")
    assert shown.stderr.endswith(said)
