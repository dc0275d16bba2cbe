"""Runs checks side by side, each with a deadline: one that hangs or breaks does not hide the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from slurmopt.checks.in_thread import InThread, Late, within
from slurmopt.checks.result import SKIPPED, CheckResult, NotChecked, failed
from slurmopt.errors import SlurmoptError, one_line, why_failed, with_place


@dataclass(frozen=True)
class Check:
    """One check. `look` returns what it found, and may raise NotChecked, SlurmoptError or OSError."""

    name: str
    look: Callable[[], Iterable[CheckResult]]
    within: float = 5.0
    """Its deadline, in seconds."""


def run(checks: Iterable[Check]) -> list[CheckResult]:
    """The results of all checks, in their order."""
    began = time.monotonic()
    running = [(check, InThread(check.name, partial(_results, check))) for check in checks]
    return [result for check, started in running for result in _in_time(check, started, began)]


def _in_time(check: Check, started: InThread[list[CheckResult]], began: float) -> list[CheckResult]:
    try:
        return started.result(began + check.within - time.monotonic())
    except Late:
        return [failed(check.name, f"no answer within {check.within:g} s")]


def _results(check: Check) -> list[CheckResult]:
    try:
        return list(check.look())
    except NotChecked as reason:
        return [CheckResult(check.name, SKIPPED, one_line(str(reason)))]
    except (SlurmoptError, OSError) as error:
        return [CheckResult(check.name, SKIPPED, one_line(with_place(error)))]
    except Exception as error:  # noqa: BLE001 - a mistake in one check must not hide the others
        return [failed(check.name, one_line(f"the check itself failed: {type(error).__name__}: {error}"))]


def checked(name: str, seconds: float, check: Callable[[], list[CheckResult]]) -> list[CheckResult]:
    """The results of one check in its turn, which may hang or fail without hiding those of other checks."""
    try:
        return within(seconds, check)
    except OSError as error:
        return [CheckResult(name, SKIPPED, f"not known: {why_failed(error)}")]
