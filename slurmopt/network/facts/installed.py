"""The versions of what is installed: NCCL, aws-ofi-nccl, libfabric, drivers, CUDA and torch. No library is loaded."""

from __future__ import annotations

import mmap
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

from slurmopt.kernel_files import text
from slurmopt.network.facts.node_facts import Versions

_FI_INFO_SECONDS = 2.0
_LARGEST_PLUGIN = 64 << 20
_PLUGIN_NAMES = ("libnccl-net-ofi.so", "libnccl-net-aws-ofi.so", "libnccl-net.so")
_LIBRARIES = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/local/lib",
    "opt/nccl/build/lib",
)
_PLUGINS = (
    "opt/amazon/ofi-nccl/lib",
    "opt/amazon/ofi-nccl/lib64",
    "opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "opt/aws-ofi-nccl/lib",
    *_LIBRARIES,
)
_PLUGIN_VERSION = re.compile(rb"aws-ofi-nccl (\d+\.\d+\.\d+[\w.-]*)")
_LIBNCCL = re.compile(r"libnccl\.so\.(\d+\.\d+\.\d+)")


def versions(root: Path, environ: Mapping[str, str], asks_libfabric: bool) -> Versions:
    """Those of the programs and libraries that a process with this environment would use. `asks_libfabric`: whether
    libfabric's own program may be started, if no file tells its version."""
    folders = [Path(word) for word in environ.get("LD_LIBRARY_PATH", "").split(":") if word]
    packages = _efa_packages(root)
    return Versions(
        nccl=_of_package("nvidia-nccl-") or _nccl_file([*folders, *(root / place for place in _LIBRARIES)]),
        plugin=_plugin([*folders, *(root / place for place in _PLUGINS)])
        or _first(r".*ofi-nccl[-_]v?(\d.*)", packages),
        libfabric=_of_pkg_config(root)
        or _first(r"libfabric(?:-aws)?[-_](\d.*)", packages)
        or (libfabric(root, environ) if asks_libfabric else None),
        efa_driver=_module(root, "efa"),
        driver=_module(root, "nvidia"),
        cuda=_of_package("nvidia-cuda-runtime-"),
        torch=_of_package("torch"),
    )


def _module(root: Path, name: str) -> str | None:
    return (text(root / f"sys/module/{name}/version") or "").strip() or None


def _of_package(name: str) -> str | None:
    """The version of an installed Python package; with a dash at its end, of the newest one whose name begins so."""
    names = [f"{name}cu{cuda}" for cuda in (13, 12, 11)] if name.endswith("-") else [name]
    for one in names:
        try:
            return metadata.version(one)
        except metadata.PackageNotFoundError:
            continue
    return None


def _nccl_file(folders: Iterable[Path]) -> str | None:
    for folder in folders:
        for name in _listed(folder):
            if match := _LIBNCCL.fullmatch(name):
                return match[1]
    return None


def _plugin(folders: Iterable[Path]) -> str | None:
    for path in _plugins(folders):
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if not 0 < size <= _LARGEST_PLUGIN:
                    continue
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                    if match := _PLUGIN_VERSION.search(content):
                        return match[1].decode()
        except OSError:  # not for this user: NCCL cannot load it either
            continue
    return None


def _plugins(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        names = _listed(folder)
        yield from (folder / name for name in _PLUGIN_NAMES if name in names)


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def libfabric(root: Path, environ: Mapping[str, str]) -> str | None:
    """As `fi_info --version` says it: `libfabric: 1.22.0amzn4.0`. The name of the library's file has another number."""
    own = root / "opt/amazon/efa/bin/fi_info"
    try:
        done = subprocess.run(
            [str(own) if own.exists() else "fi_info", "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_FI_INFO_SECONDS,
            env={name: value for name, value in environ.items() if not name.startswith("FI_LOG")},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):  # not installed, or on a disk that hangs
        return None
    lines = dict(line.partition(":")[::2] for line in done.stdout.splitlines())
    return lines.get("libfabric", "").strip() or None


def _efa_packages(root: Path) -> list[str]:
    """The packages of the EFA installer, such as `libfabric-aws-1.22.0amzn1.0.el9.x86_64`."""
    return (text(root / "opt/amazon/efa_installed_packages") or "").split()


def _of_pkg_config(root: Path) -> str | None:
    for folder in (*(f"opt/amazon/efa/{name}" for name in ("lib", "lib64")), *_LIBRARIES):
        found = _first(r"Version: *(.*)", (text(root / folder / "pkgconfig/libfabric.pc") or "").splitlines())
        if found is not None:
            return found
    return None


def _first(pattern: str, names: Iterable[str]) -> str | None:
    """What the pattern's group has in the first name that it matches."""
    return next((match[1] for name in names if (match := re.fullmatch(pattern, name)) is not None), None)
