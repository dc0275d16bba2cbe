"""Checks of the container runtimes: whether those that are installed run, for this user and with GPUs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator

from slurmopt.checks.result import FAIL, PASS, SKIPPED, WARN, CheckResult, NotChecked
from slurmopt.errors import one_line

_RUNTIMES = {
    "apptainer": ("--version",), "singularity": ("--version",), "enroot": ("version",), "podman": ("--version",),
    "docker": ("--version",),
}  # fmt: skip
_ROOTLESS = ("apptainer", "singularity", "enroot", "podman")
_SECONDS = 4.0
_SWITCHES = {"kernel.unprivileged_userns_clone": "1", "kernel.apparmor_restrict_unprivileged_userns": "0"}
"""Of Debian and Ubuntu, and what they are where user namespaces are allowed."""


def containers(has_gpus: bool) -> Iterator[CheckResult]:
    """The runtimes that are installed, and what keeps them from running as this user."""
    found = [name for name in _RUNTIMES if shutil.which(name)]
    if not found:
        raise NotChecked(f"none of {', '.join(_RUNTIMES)} is installed here")
    for name in found:
        yield _version(name)
    rootless = [name for name in _ROOTLESS if name in found and not _has_setuid_starter(name)]
    if rootless and os.getuid() != 0:
        yield from _user_namespaces(rootless)
    if "enroot" in found and has_gpus and not shutil.which("nvidia-container-cli"):
        text = "enroot gives containers no GPUs without nvidia-container-cli"
        yield CheckResult("containers", WARN, text, "install libnvidia-container-tools, by an administrator")


def pyxis() -> Iterator[CheckResult]:
    """Whether srun has pyxis's options, which `environment.container.runtime=pyxis` needs. NotChecked without srun."""
    srun = shutil.which("srun")
    if srun is None:
        raise NotChecked("srun is not installed here")
    if "--container-image" in _said((srun, "--help")).stdout:
        yield CheckResult("pyxis", PASS, "srun has --container-image")
    else:
        text = "srun has no --container-image; valid here: environment.container.runtime=apptainer"
        yield CheckResult("pyxis", SKIPPED, text)


def _version(name: str) -> CheckResult:
    words = (name, *_RUNTIMES[name])
    try:
        done = _said(words)
    except subprocess.TimeoutExpired:
        return CheckResult("containers", FAIL, f"{name} gave no answer within {_SECONDS:g} s", " ".join(words))
    if done.returncode:
        why = one_line((done.stderr or done.stdout).strip() or f"exit status {done.returncode}")
        return CheckResult("containers", FAIL, f"{name} does not run: {why}", " ".join(words))
    version = re.search(r"\d+(\.\d+)+[\w.+-]*", done.stdout)
    return CheckResult("containers", PASS, f"{name} {version[0]}" if version else name)


def _user_namespaces(names: list[str]) -> Iterator[CheckResult]:
    """By making one: limits, distributions' switches and security modules all forbid it in ways of their own."""
    if shutil.which("unshare") is None:
        return
    done = _said(("unshare", "--user", "--map-root-user", "true"))
    if done.returncode:
        text = f"this user may not make user namespaces, which {_listed(names)}: {one_line(done.stderr.strip())}"
        yield CheckResult("containers", FAIL, text, f"{_switch()}, by an administrator")


def _listed(names: list[str]) -> str:
    return f"{' and '.join(names)} need{'s' * (len(names) == 1)}"


def _switch() -> str:
    """The setting that forbids them."""
    for name, wanted in _SWITCHES.items():
        if _value(name) not in (None, wanted):
            return f"sysctl -w {name}={wanted}"
    return "sysctl -w user.max_user_namespaces=15000"


def _value(name: str) -> str | None:
    try:
        with open("/proc/sys/" + name.replace(".", "/"), encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def _has_setuid_starter(name: str) -> bool:
    return any(os.path.exists(f"/usr/{folder}libexec/{name}/bin/starter-suid") for folder in ("", "local/"))


def _said(words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
