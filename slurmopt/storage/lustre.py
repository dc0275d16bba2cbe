"""Sets a Lustre stripe layout that fits a checkpoint's files, before the first of them is written."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from slurmopt.errors import one_line
from slurmopt.units import human_bytes

__all__ = ["layout", "on_lustre", "stripe"]

_MIB, _GIB = 1024**2, 1024**3
_COMPONENTS = (
    (100 * _MIB, "100M", 1),
    (_GIB, "1G", 4),
    (10 * _GIB, "10G", 8),
    (100 * _GIB, "100G", 16),
    (None, "-1", 32),
)
"""The end of each component (bytes, and as lfs writes it) and its largest stripe count: the progressive layout of the
FSx for Lustre guide, with a step at 1 GiB, below which more than 4 stripes cost more in round trips than they gain."""
_TIMEOUT = 10.0
"""Seconds for one call of lfs, which hangs when a server hangs."""


def on_lustre(path: str | os.PathLike[str], mounts: str | None = None) -> bool:
    """Whether `path`, which need not exist yet, is on Lustre. `mounts`: text as in /proc/self/mounts, the default."""
    resolved = Path(os.path.realpath(path))
    mount_point, file_system = Path(), ""
    for line in (_mounts() if mounts is None else mounts).splitlines():
        words = line.split(" ")
        if len(words) < 3:
            continue
        candidate = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), words[1]))
        # >=: a later mount on the same point hides the earlier one.
        if resolved.is_relative_to(candidate) and len(candidate.parts) >= len(mount_point.parts):
            mount_point, file_system = candidate, words[2]
    return file_system == "lustre"


def _mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text(errors="surrogateescape")
    except OSError:  # without /proc this is not Linux, so there is no Lustre client
        return ""


def layout(file_bytes: int, files: int, osts: int) -> list[str]:
    """Options of `lfs setstripe` for `files` files of `file_bytes` each, written concurrently, on `osts` OSTs.

    A file gets at most its share of the OSTs (osts / files), so that ranks do not share an OST. Large files get a
    progressive layout, so that small files beside them (the manifest) still use one OST and one round trip.
    """
    share = max(1, osts // max(1, files))
    components: list[tuple[str, int]] = []
    for end, word, widest in _COMPONENTS:
        last = end is None or file_bytes <= end
        count = min(widest, share)
        if components and components[-1][1] == count:
            components.pop()
        components.append(("-1" if last else word, count))
        if last:
            break
    if len(components) == 1:
        return ["-c", str(components[0][1])]
    return [option for word, count in components for option in ("-E", word, "-c", str(count))]


def stripe(
    folder: str | os.PathLike[str],
    file_bytes: int,
    files: int,
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run,
    mounts: str | None = None,
) -> str | None:
    """Sets the layout of a new, empty `folder`, which its files inherit. Returns None where it is not on Lustre.

    Otherwise returns one line for the log: the layout and the reason, or what failed. Nothing is raised, since a
    failure costs only speed. Each of the two calls of lfs (`lfs df`, `lfs setstripe`) has a timeout of 10 s.
    """
    if not on_lustre(folder, mounts):
        return None
    path = os.path.realpath(folder)
    try:
        osts = _osts(_lfs(run, ["df", "--lazy", path]))
        options = layout(file_bytes, files, osts)
        result = _lfs(run, ["setstripe", *options, path])
        if result.returncode:
            raise _LfsError(f"lfs setstripe {' '.join(options)} failed: {_reason(result)}")
    except _LfsError as error:
        return one_line(f"Lustre: {path} keeps the layout that it inherits: {error}")
    count = "1 file" if files == 1 else f"{files:,} files"
    size = f"{count} of {human_bytes(file_bytes)} on {osts} OST{'s' * (osts != 1)}"
    return one_line(f"Lustre: {path} has the layout {' '.join(options)} for {size}")


class _LfsError(Exception):
    """Why no layout was set; `stripe` returns it as a line."""


def _lfs(run: Callable[..., subprocess.CompletedProcess[str]], words: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return run(
            ["lfs", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except FileNotFoundError:
        raise _LfsError("lfs, which Lustre's client package brings, is not installed here") from None
    except subprocess.TimeoutExpired:
        raise _LfsError(f"lfs {words[0]} did not answer within {_TIMEOUT:g} s") from None
    except OSError as error:
        raise _LfsError(f"lfs cannot be started: {error.strerror}") from None


def _osts(answer: subprocess.CompletedProcess[str]) -> int:
    """Counts the active OSTs: lines such as `fs-OST0007_UUID 7.2G 3.0M 7.2G 1% /fsx[OST:7]`.

    An inactive OST has no `[OST:…]`; lfs may then exit with an error although it has listed all others.
    """
    count = len(re.findall(r"\[OST:\d+", answer.stdout))
    if not count:
        raise _LfsError(f"lfs df names no OST: {_reason(answer)}")
    return count


def _reason(answer: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in answer.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {answer.returncode}"
