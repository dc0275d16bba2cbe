"""The result of one check: pass, warn, fail or skipped, and the command that mends it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

PASS, WARN, FAIL, SKIPPED = "pass", "warn", "fail", "skipped"
VERDICTS = (FAIL, WARN, SKIPPED, PASS)
"""The worst first."""


class NotChecked(Exception):
    """Raised by a check that cannot be made here, with the reason. This is no failure."""


@dataclass(frozen=True)
class CheckResult:
    """What one check found."""

    name: str
    """What was checked, in a word or two."""
    verdict: str
    """A word of VERDICTS. `skipped`: it could not be checked, and `text` says why."""
    text: str
    """What was found, in one line."""
    mend: str | None = None
    """The command or the setting that mends it; None where nothing is wrong, or nothing is known to mend it."""
    nodes: tuple[str, ...] | None = None
    """The nodes at fault; None: the machine that checks, or the cluster; empty: none, but what the nodes share."""
    passing: bool = False
    """Whether the problem may pass by itself, so that it is worth to check again."""

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)


def failed(name: str, text: str, nodes: tuple[str, ...] | None = None, passing: bool = False) -> CheckResult:
    """A failed check of a node; nothing that its user could run mends it."""
    return CheckResult(name, FAIL, text, nodes=nodes, passing=passing)


def worst(results: list[CheckResult]) -> str:
    """The worst verdict; PASS for no results."""
    return next((verdict for verdict in VERDICTS if any(one.verdict == verdict for one in results)), PASS)


def has_failed(results: Iterable[CheckResult]) -> bool:
    """Whether one of them is a failure."""
    return any(result.verdict == FAIL for result in results)
