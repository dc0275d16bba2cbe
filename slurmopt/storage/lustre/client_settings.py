"""Settings of the Lustre client that are worth asking the administrator for. Read only: nothing here sets one.

The values are those of "Performance tips" in the FSx for Lustre guide: for clients with more than 64 GiB of memory,
with more than 64 cores, and for listing folders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from slurmopt.checks.result import CheckResult

_LARGE_MEMORY, _MANY_CORES = 64 << 30, 64
_ANY = "every client"


@dataclass(frozen=True)
class Setting:
    """One parameter: its pattern, the value to set for a number of cores, and for which clients it holds."""

    pattern: str
    value: Callable[[int], int]
    clients: str
    applies: Callable[[int, int], bool]
    """Of the number of cores, and bytes of memory."""
    reason: str
    most: bool = False
    """Whether larger values than `value` are the problem; else smaller ones."""


def _of_memory(cores: int, memory: int) -> bool:
    return memory > _LARGE_MEMORY


def _of_cores(cores: int, memory: int) -> bool:
    return cores > _MANY_CORES


def _always(cores: int, memory: int) -> bool:
    return True


_MEMORY, _CORES = "more than 64 GiB of memory", "more than 64 cores"
SETTINGS = (
    Setting(
        "ldlm.namespaces.*.lru_max_age", lambda cores: 600_000, _MEMORY, _of_memory,
        "locks of files that are not used any more take memory and time", most=True,
    ),
    Setting(
        "ldlm.namespaces.*.lru_size", lambda cores: 100 * cores, _MEMORY, _of_memory,
        "0 lets the cache of locks grow without a limit",
    ),
    Setting("osc.*OST*.max_rpcs_in_flight", lambda cores: 32, _CORES, _of_cores, "requests to one OST at a time"),
    Setting("mdc.*.max_rpcs_in_flight", lambda cores: 64, _CORES, _of_cores, "requests to the MDS at a time"),
    Setting("mdc.*.max_mod_rpcs_in_flight", lambda cores: 50, _CORES, _of_cores, "of these, ones that change files"),
    Setting("llite.*.statahead_max", lambda cores: 512, _ANY, _always, "listing large folders"),
)  # fmt: skip
PATTERNS = tuple(setting.pattern for setting in SETTINGS)


def settings_checks(found: dict[str, str], cores: int, memory_bytes: int) -> list[CheckResult]:
    """A verdict on each setting that holds for this client; `found` is what `lctl get_param` answers."""
    results = []
    for setting in SETTINGS:
        if setting.applies(cores, memory_bytes):
            values = [value for name, value in found.items() if fnmatchcase(name, setting.pattern)]
            results.append(_verdict(setting, values, cores))
    return results


def _verdict(setting: Setting, values: list[str], cores: int) -> CheckResult:
    name, wanted = setting.pattern, setting.value(cores)
    numbers = [int(value) for value in values if value.strip().isdecimal()]
    if not numbers:
        return CheckResult(name, "skipped", "not shown to this user, or not known to this version of Lustre")
    worst = max(numbers) if setting.most else min(numbers)
    if worst <= wanted if setting.most else worst >= wanted:
        return CheckResult(name, "pass", f"{worst:,}")
    bound = "at most" if setting.most else "at least"
    text = f"{worst:,}; {bound} {wanted:,} fits {setting.clients} ({setting.reason})"
    return CheckResult(name, "warn", text, f"ask the administrator: sudo lctl set_param '{name}={wanted}'")
