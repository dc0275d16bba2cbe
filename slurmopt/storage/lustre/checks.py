"""Verdicts on a Lustre file system: its OSTs, the layout and quota of a folder, and the settings of this client."""

from __future__ import annotations

import os
import shlex
import subprocess

from slurmopt.checks.result import CheckResult
from slurmopt.storage.filesystem.checks import quota_check
from slurmopt.storage.lustre import commands
from slurmopt.storage.lustre.client_settings import PATTERNS, settings_checks
from slurmopt.storage.lustre.commands import LustreError, Run, Target
from slurmopt.units import human_bytes

_FULL = 0.05
"""A share of an OST that is free. Writes to one that is full fail although others have space."""
_UNEVEN = 0.25
"""A difference of the free shares of the fullest and the emptiest OST."""


def target_checks(path: str, run: Run = subprocess.run) -> list[CheckResult]:
    """How many OSTs there are, what is wrong with them, and whether they are filled evenly."""
    try:
        found = commands.targets(path, run)
    except LustreError as error:
        return [_skipped("OSTs", error)]
    osts = [target for target in found if target.kind == "OST"]
    text = f"{len(osts)} active, {human_bytes(sum(ost.bytes for ost in osts))}"
    return [CheckResult("OSTs", "pass", text), _states(found), _balance(osts)]


def layout_check(path: str, run: Run = subprocess.run) -> CheckResult:
    """The layout that new files get."""
    try:
        lines = commands.default_layout(path, run)
    except LustreError as error:
        return _skipped("layout", error)
    text = "; ".join(line for line in lines if line != path) or "that of the file system"
    mend = f"slurmopt storage plan {shlex.quote(path)} --kind datasets shows what fits"
    return CheckResult("layout", "pass", text, mend)


def lustre_quota_check(path: str, run: Run = subprocess.run) -> CheckResult:
    """The user's quota."""
    try:
        return quota_check(commands.user_quota(path, os.getuid(), run))
    except LustreError as error:
        return _skipped("quota", error)


def client_checks(cores: int, memory_bytes: int, run: Run = subprocess.run) -> list[CheckResult]:
    """The settings of this client beside those that the FSx guide recommends for its size."""
    try:
        found = commands.parameters(PATTERNS, run)
    except LustreError as error:
        return [_skipped("client settings", error)]
    return settings_checks(found, cores, memory_bytes)


def _states(found: list[Target]) -> CheckResult:
    wrong = [f"{target.name} is {' and '.join(target.states)}" for target in found if target.states]
    full = [target for target in found if target.free_bytes < _FULL * target.bytes and not target.states]
    wrong += [f"{target.name} has {human_bytes(target.free_bytes)} free" for target in full]
    if not wrong:
        return CheckResult("state of the OSTs", "pass", "none is degraded or full")
    text = ", ".join(wrong[:4]) + (f" and {len(wrong) - 4} more" if len(wrong) > 4 else "")
    return CheckResult("state of the OSTs", "warn", text, "ask the administrator; new files avoid such OSTs")


def _balance(osts: list[Target]) -> CheckResult:
    shares = [ost.free_bytes / ost.bytes for ost in osts if ost.bytes]
    spread = max(shares, default=0.0) - min(shares, default=0.0)
    text = f"{100 * min(shares, default=0.0):.0f} to {100 * max(shares, default=0.0):.0f} % free"
    if spread < _UNEVEN:
        return CheckResult("balance of the OSTs", "pass", text)
    mend = "large files of one stripe fill single OSTs: slurmopt storage stripe FOLDER --kind datasets --migrate"
    return CheckResult("balance of the OSTs", "warn", text, mend)


def _skipped(name: str, error: LustreError) -> CheckResult:
    return CheckResult(name, "skipped", str(error))
