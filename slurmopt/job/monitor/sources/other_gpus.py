"""GPUs of Intel and Apple: found and named. Their columns are absent; what torch knows of them comes from the ranks."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurmopt.errors import one_line
from slurmopt.job.facts.gpus import XPU, promised
from slurmopt.job.monitor.sources.source import Source
from slurmopt.run_folder.series.series import NOT_SUPPORTED

COLUMNS = ("util", "mem_util", "memory", "memory_peak", "power", "temperature", "clock_sm", "clock_mem", "others")
_INTEL = "0x8086"
_MODELS = {"0x0bd5": "Intel Data Center GPU Max 1550", "0x0bda": "Intel Data Center GPU Max 1100"}


def open_source() -> Source | None:
    """The source of this job's GPUs of Intel or Apple, or None where it has none."""
    if sys.platform == "darwin":
        name = _apple() if platform.machine() == "arm64" else None
        return OtherGpus("Apple", [name]) if name else None
    names = intel_gpus(os.environ, Path("/"))
    return OtherGpus("Intel", names) if names else None


class OtherGpus:
    """GPUs that are named and not measured."""

    name = "gpu"

    def __init__(self, vendor: str, names: list[str]) -> None:
        self._facts = {
            "vendor": vendor,
            "gpus": [
                {"index": index, "uuid": None, "name": name, "memory": None, "power_limit": None, "mig": None,
                 "architecture": None}
                for index, name in enumerate(names)
            ],
        }  # fmt: skip
        self._absent = {f"gpu{index}.{column}": NOT_SUPPORTED for index in range(len(names)) for column in COLUMNS}

    def facts(self) -> dict[str, Any]:
        return self._facts

    def absent(self) -> dict[str, str]:
        return self._absent

    def read(self) -> dict[str, float]:
        return {}

    def events(self) -> list[dict[str, Any]]:
        return []

    def close(self) -> None:
        """Nothing is held."""


def intel_gpus(environ: Mapping[str, str], root: Path) -> list[str]:
    """The names of the Intel GPUs of this job, in the order of the kernel. Beside a GPU of NVIDIA or AMD, one of Intel
    is the graphics unit of a CPU."""
    if (root / "dev/nvidiactl").exists() or (root / "dev/kfd").exists():
        return []
    cards = _cards(root / "sys/class/drm")
    words = [word.partition(".")[0] for word in promised(environ, XPU)]  # card.tile
    numbers = list(dict.fromkeys(int(word) for word in words if word.isdigit()))
    return [cards[number] for number in numbers if number < len(cards)]


def _cards(drm: Path) -> list[str]:
    found = []
    for card in sorted(drm.glob("card*"), key=lambda path: (len(path.name), path.name)):
        if card.name.removeprefix("card").isdigit() and _word(card / "device" / "vendor") == _INTEL:
            device = _word(card / "device" / "device")
            found.append(_MODELS.get(device, f"Intel GPU {device}"))
    return found


def _word(path: Path) -> str:
    try:
        return one_line(path.read_text(errors="replace").strip()[:40])
    except OSError:
        return ""


def _apple() -> str | None:
    try:
        told = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{one_line(told.stdout.strip())} GPU"
