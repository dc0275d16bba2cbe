"""Calls `lfs` and `lctl`, and reads what they print. Nothing else calls them.

The grammar is that of lfs-setstripe(1), lfs-getstripe(1), lfs-migrate(1), lfs-df(1), lfs-quota(1), lfs-hsm(1) and
lctl-get_param(8). Paths are absolute, so none of them looks like an option; no shell is involved.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from slurmopt.errors import one_line
from slurmopt.storage.filesystem.quota import Quota

Run = Callable[..., "subprocess.CompletedProcess[str]"]
TIMEOUT = 10.0
"""Seconds for one call, which hangs when a server hangs. Migration has none: it copies files."""
_KIB = 1024
_TARGET = re.compile(r"^(\S+)_UUID\s+(\d+)\s+(\d+)\s+(\d+)\s+\d+%\s+.*\[(OST|MDT):(\d+)[^\]]*\](?:\s+(\w+))?\s*$")
_STATES = {"D": "degraded", "R": "read-only", "N": "no new objects", "S": "out of space", "I": "out of inodes"}
_LINE_OF_QUOTA = re.compile(r"^\s*\S.*?\s+" + r"\s+".join([r"(\d+)\*?", r"(\d+)", r"(\d+)", r"(\S+)"] * 2))


class LustreError(Exception):
    """Why lfs or lctl gave no answer, in one line."""


@dataclass(frozen=True)
class Target:
    """An OST or MDT, in bytes."""

    name: str
    kind: str
    index: int
    bytes: int
    free_bytes: int
    states: tuple[str, ...]
    """What is wrong with it, in words."""


def tool(
    words: Sequence[str], run: Run = subprocess.run, timeout: float | None = -1.0
) -> subprocess.CompletedProcess[str]:
    """Calls `words`, such as ["lfs", "df", "/fsx"]; the exit status is the caller's to judge. Raises LustreError."""
    seconds = TIMEOUT if timeout is not None and timeout < 0 else timeout
    try:
        return run(
            list(words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError:
        raise LustreError(f"{words[0]}, which Lustre's client package brings, is not installed here") from None
    except subprocess.TimeoutExpired:
        raise LustreError(f"{' '.join(words[:2])} did not answer within {seconds:g} s") from None
    except OSError as error:
        raise LustreError(f"{words[0]} cannot be started: {error.strerror}") from None


def targets(path: str, run: Run = subprocess.run) -> list[Target]:
    """The MDTs and active OSTs, by `lfs df`. Raises LustreError where there is no OST.

    An inactive OST has no `[OST:…]`; lfs may then exit with an error although it has listed all others.
    """
    answer = tool(["lfs", "df", "--lazy", path], run)
    found = [_target(match) for line in answer.stdout.splitlines() if (match := _TARGET.match(line))]
    if not any(target.kind == "OST" for target in found):
        raise LustreError(f"lfs df names no OST: {reason(answer)}")
    return found


def count_osts(path: str, run: Run = subprocess.run) -> int:
    """The number of active OSTs. Raises LustreError."""
    return sum(target.kind == "OST" for target in targets(path, run))


def default_layout(path: str, run: Run = subprocess.run) -> list[str]:
    """The layout that new files of a folder, or the file at `path`, has: the lines of `lfs getstripe -d`."""
    answer = _successful(["lfs", "getstripe", "-d", path], run)
    return [" ".join(line.split()) for line in answer.splitlines() if line.strip()]


def set_layout(path: str, options: Sequence[str], run: Run = subprocess.run) -> None:
    """Sets the layout that new files of a folder inherit."""
    answer = tool(["lfs", "setstripe", *options, path], run)
    if answer.returncode:
        raise LustreError(f"lfs setstripe {' '.join(options)} failed: {reason(answer)}")


def migrate(path: str, options: Sequence[str], run: Run = subprocess.run) -> None:
    """Copies a file into another layout. It is given up if someone else uses the file."""
    answer = tool(["lfs", "migrate", "--non-block", *options, path], run, timeout=None)
    if answer.returncode:
        raise LustreError(f"lfs migrate failed: {reason(answer)}")


def user_quota(path: str, uid: int, run: Run = subprocess.run) -> Quota | None:
    """The quota of a user on the file system of `path`; None where none is kept."""
    answer = _successful(["lfs", "quota", "-q", "-u", str(uid), path], run)
    # A long name of a file system is on a line of its own.
    match = _LINE_OF_QUOTA.match(answer.replace("\n", " "))
    if match is None:
        return None
    kbytes, soft, hard, _, files, soft_files, hard_files, _ = match.groups()
    limits = [int(number) or None for number in (soft_files, hard_files)]
    return Quota(
        f"user {uid}",
        int(kbytes) * _KIB,
        int(soft) * _KIB or None,
        int(hard) * _KIB or None,
        int(files),
        *limits[:2],
    )


def hsm_states(paths: Sequence[str], run: Run = subprocess.run) -> dict[str, frozenset[str] | str]:
    """The HSM flags of each file, such as {"released", "exists", "archived"}, or in one line why they are not known."""
    return _of_each("hsm_state", paths, run, lambda rest: frozenset(rest.partition(",")[0].split()[1:]))


def hsm_actions(paths: Sequence[str], run: Run = subprocess.run) -> dict[str, frozenset[str] | str]:
    """The first word of what is in progress for each file: {"NOOP"}, {"RESTORE"}."""
    return _of_each("hsm_action", paths, run, lambda rest: frozenset(rest.split()[:1]))


def hsm_restore(paths: Sequence[str], run: Run = subprocess.run) -> None:
    """Requests the content of files that are in S3 only, and returns at once. Raises LustreError."""
    answer = tool(["lfs", "hsm_restore", *paths], run)
    if answer.returncode:
        raise LustreError(f"lfs hsm_restore failed: {reason(answer)}")


def parameters(patterns: Sequence[str], run: Run = subprocess.run) -> dict[str, str]:
    """Parameters of the client, by name: `lctl get_param`, which any user may call. Those that are hidden are left
    out. Raises LustreError where none is answered."""
    answer = tool(["lctl", "get_param", *patterns], run)
    found = dict(line.split("=", 1) for line in answer.stdout.splitlines() if "=" in line)
    if not found:
        raise LustreError(f"lctl get_param has no answer: {reason(answer)}")
    return found


def reason(answer: subprocess.CompletedProcess[str]) -> str:
    """The last line that a failed call has on standard error."""
    text = answer.stderr.encode(errors="surrogateescape").decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else f"exit status {answer.returncode}"


def _successful(words: Sequence[str], run: Run) -> str:
    answer = tool(words, run)
    if answer.returncode:
        raise LustreError(f"{' '.join(words[:2])} failed: {reason(answer)}")
    return answer.stdout


def _target(match: re.Match[str]) -> Target:
    name, total, _, free, kind, index, flags = match.groups()
    states = tuple(_STATES[flag] for flag in flags or "" if flag in _STATES)
    return Target(name, kind, int(index), int(total) * _KIB, int(free) * _KIB, states)


def _of_each(
    command: str, paths: Sequence[str], run: Run, read: Callable[[str], frozenset[str]]
) -> dict[str, frozenset[str] | str]:
    """lfs stops at the first file that it cannot tell of: that one gets its error, and the rest is asked again."""
    found: dict[str, frozenset[str] | str] = {}
    left = list(paths)
    while left:
        answer = tool(["lfs", command, *left], run)
        told = dict(_lines(answer.stdout, left))
        found |= {path: read(rest) for path, rest in told.items()}
        left = left[len(told) :]
        if left:
            found[left[0]] = reason(answer)
            left = left[1:]
    return found


def _lines(text: str, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """`PATH: rest` of each path in turn. The names are known: one may contain a newline or a colon."""
    position = 0
    for path in paths:
        if not text.startswith(f"{path}: ", position):
            return
        end = text.find("\n", position + len(path))
        end = len(text) if end < 0 else end
        yield path, text[position + len(path) + 2 : end]
        position = end + 1
