"""Checks of this Python and its packages. Nothing is imported for it: torch takes seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import metadata

from slurmopt.checks.result import FAIL, PASS, SKIPPED, WARN, CheckResult
from slurmopt.network.facts.node_facts import Versions
from slurmopt.network.versions import is_earlier

_SHADOWS = ("pynvml", "nvidia-ml-py3")
"""Packages that bring a module pynvml of their own."""
_OLDEST_DRIVER = {"13": "580", "12": "525", "11": "450"}
"""The major version of CUDA → the first branch of NVIDIA's driver that runs all its minor versions: the table of minor
version compatibility in the release notes of the CUDA toolkit."""


def python() -> Iterator[CheckResult]:
    """The Python and the environment that a launch gives to its job."""
    version = sys.version.split()[0]
    environment = sys.prefix if sys.prefix != sys.base_prefix else "no virtual environment"
    yield CheckResult("Python", PASS, f"{version}, {environment}")


def torch(versions: Versions) -> Iterator[CheckResult]:
    """Whether torch, CUDA and the driver fit together."""
    if versions.torch is None:
        yield CheckResult("torch", SKIPPED, "not installed in this Python", "pip install torch")
        return
    said = f"torch {versions.torch}" + (f", CUDA {versions.cuda}" if versions.cuda else "")
    needed = _OLDEST_DRIVER.get((versions.cuda or "").partition(".")[0])
    if versions.driver is not None and "+cpu" in versions.torch:
        text = f"torch {versions.torch} is built without CUDA, and this machine has NVIDIA's driver {versions.driver}"
        yield CheckResult("torch", FAIL, text, "pip install torch, from the index of your CUDA version")
    elif needed is not None and is_earlier(versions.driver, needed):
        text = f"{said} needs a driver of branch {needed} or later, and this machine has {versions.driver}"
        yield CheckResult("torch", FAIL, text, "update the driver, or install a torch for an earlier CUDA")
    else:
        yield CheckResult("torch", PASS, said + (f", driver {versions.driver}" if versions.driver else ""))


def nvml_packages() -> Iterator[CheckResult]:
    """Whether another package shadows the module pynvml of nvidia-ml-py."""
    found = {name: version for name in (*_SHADOWS, "nvidia-ml-py") if (version := _version(name)) is not None}
    wrong = [name for name in _SHADOWS if name in found]
    if "nvidia-ml-py3" in wrong or (wrong and "nvidia-ml-py" not in found):
        text = f"{', '.join(f'{name} {found[name]}' for name in wrong)}: an old module pynvml hides nvidia-ml-py's"
        again = f"pip uninstall -y {' '.join(wrong)} && pip install --force-reinstall nvidia-ml-py"
        yield CheckResult("pynvml", FAIL, text, again)
    elif wrong:
        text = f"pynvml {found['pynvml']} is installed beside nvidia-ml-py; it is deprecated and not needed"
        yield CheckResult("pynvml", WARN, text, "pip uninstall -y pynvml && pip install --force-reinstall nvidia-ml-py")
    elif found:
        yield CheckResult("pynvml", PASS, f"nvidia-ml-py {found['nvidia-ml-py']}")
    else:
        yield CheckResult("pynvml", SKIPPED, "GPUs are not measured without it", "pip install nvidia-ml-py")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
