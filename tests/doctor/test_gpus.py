"""The doctor's checks of GPUs. NVML is simulated: a library in C behind the real nvidia-ml-py (see nvml_stub)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from job.monitor.nvml_stub import (
    Stub,
    nvml,  # noqa: F401
)

Nvml = Callable[..., Stub]
ASK = "import json; from slurmopt.doctor.gpus import gpus; print(json.dumps([one.as_dict() for one in gpus()]))"
HEALTHY: dict[str, Any] = {
    "ecc": 0, "persistence": 1, "nvlinks": 18, "nvlinks_of": 18, "lanes": 16, "lanes_of": 16, "processes": None,
    "reasons": 0,
}  # fmt: skip


def found(stub: Stub) -> list[tuple[str, str, str]]:
    words = [sys.executable, "-c", ASK]
    done = subprocess.run(words, env={**os.environ, **stub.environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [(each["name"], each["verdict"], each["text"]) for each in json.loads(done.stdout)]


def test_gpus_that_are_as_they_should_be(nvml: Nvml) -> None:  # noqa: F811
    assert {verdict for _, verdict, _ in found(nvml("h100", gpu=HEALTHY))} == {"pass"}


@pytest.mark.parametrize(
    ("of_one", "name", "verdict", "text"),
    [
        ({"nvlinks": 15}, "GPU links", "fail", "GPU 1 has 15 NVLinks that are up, the others have 18"),
        ({"lanes": 8}, "GPU links", "warn", "GPU 1 is connected by 8 of 16 PCIe lanes"),
        ({"ecc": 3}, "GPU memory", "warn", "GPU 1: 3 uncorrected memory errors since its last reset"),
        ({"persistence": 0}, "GPU persistence", "warn", "GPU 1: persistence mode is off"),
        ({"reasons": 0x40}, "GPU clocks", "warn", "GPU 1 is slowed down: it is too hot"),
        ({"processes": "4711:1000"}, "GPU processes", "warn", "GPU 1 is used by process 4711"),
        ({"errors": {"nvmlDeviceGetHandleByIndex_v2": 15}}, "GPUs", "fail", "GPU 1: GPU is lost"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_is_wrong_with_one_gpu(
    nvml: Nvml,  # noqa: F811
    of_one: dict[str, Any],
    name: str,
    verdict: str,
    text: str,
) -> None:
    wrong = [each for each in found(nvml("h100", gpu=HEALTHY, gpu1=of_one)) if each[1] != "pass"]
    assert [(each[0], each[1]) for each in wrong] == [(name, verdict)]
    assert wrong[0][2].startswith(text)


def test_cards_without_nvlink_lack_none(nvml: Nvml) -> None:  # noqa: F811
    without = {"nvlinks": 0, "nvlinks_of": 0}
    assert "GPU links" not in {name for name, _, _ in found(nvml("h100", gpu={**HEALTHY, **without}))}
