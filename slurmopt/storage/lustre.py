"""Lustre: a stripe layout that fits a checkpoint's files, set on its folder before the first of them is written."""

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
"""Where a component ends (bytes, and lfs's word for it) and its widest stripe count. The progressive layout of AWS's
guide to FSx for Lustre, with a step at 1 GiB: up to there more than 4 stripes cost more round trips than they bring."""
_TIMEOUT = 10.0
"""Seconds for one call of lfs: it hangs when a server does."""


def on_lustre(path: str | os.PathLike[str], mounts: str | None = None) -> bool:
    """Whether `path`, which need not exist yet, lies on Lustre. `mounts`: text as in /proc/self/mounts, the default."""
    place = Path(os.path.realpath(path))
    found, kind = Path(), ""
    for line in (_mounts() if mounts is None else mounts).splitlines():
        words = line.split(" ")
        if len(words) < 3:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), words[1]))
        # >=: of two mounts on one point the later hides the earlier.
        if place.is_relative_to(point) and len(point.parts) >= len(found.parts):
            found, kind = point, words[2]
    return kind == "lustre"


def _mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text(errors="surrogateescape")
    except OSError:  # no /proc: no Linux, so no Lustre client
        return ""


def layout(file_bytes: int, files: int, osts: int) -> list[str]:
    """Options of `lfs setstripe` for `files` files of `file_bytes` each, written at once, on `osts` OSTs.

    A file gets at most its share of the OSTs (osts / files), so that ranks do not meet on one. Large files get a
    progressive layout, so that the small ones beside them (the manifest) still cost one OST and one round trip.
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
    """Sets the layout of a new, empty `folder`, which its files inherit; None where it is not on Lustre.

    Otherwise one line: what was set and why, or what failed. A failure costs speed and not the checkpoint, so nothing
    is raised. Each of the two calls of lfs (`lfs df`, `lfs setstripe`) has 10 s.
    """
    if not on_lustre(folder, mounts):
        return None
    place = os.path.realpath(folder)
    try:
        osts = _osts(_lfs(run, ["df", "--lazy", place]))
        options = layout(file_bytes, files, osts)
        done = _lfs(run, ["setstripe", *options, place])
        if done.returncode:
            raise _LfsError(f"lfs setstripe {' '.join(options)} failed: {_reason(done)}")
    except _LfsError as error:
        return one_line(f"Lustre: {place} keeps the layout that it inherits: {error}")
    count = "1 file" if files == 1 else f"{files:,} files"
    size = f"{count} of {human_bytes(file_bytes)} on {osts} OST{'s' * (osts != 1)}"
    return one_line(f"Lustre: {place} has the layout {' '.join(options)} for {size}")


class _LfsError(Exception):
    """Why there is no layout; becomes a line and never leaves this module."""


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
    """OSTs that take data: lines such as `fs-OST0007_UUID 7.2G 3.0M 7.2G 1% /fsx[OST:7]`.

    An inactive one has no `[OST:…]`, and lfs may then end with an error although it has told of all the others.
    """
    count = len(re.findall(r"\[OST:\d+", answer.stdout))
    if not count:
        raise _LfsError(f"lfs df names no OST: {_reason(answer)}")
    return count


def _reason(answer: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in answer.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {answer.returncode}"
