"""Prints verdicts for people."""

from __future__ import annotations

from collections.abc import Iterable

from slurmopt.checks.result import CheckResult
from slurmopt.errors import one_line


def print_results(results: Iterable[CheckResult]) -> None:
    """A line for each, and the mend below it."""
    shown = list(results)
    width = max((len(result.name) for result in shown), default=0)
    for result in shown:
        print(one_line(f"{result.verdict:7}  {result.name:{width}}  {result.text}"))
        if result.mend is not None:
            print(one_line(f"{'':7}  {'':{width}}  → {result.mend}"))


def print_failures(failed: dict[str, str], most: int = 20) -> None:
    """A line for each file, up to `most`."""
    for path, reason in list(failed.items())[:most]:
        print(one_line(f"{path}: {reason}"))
    if len(failed) > most:
        print(f"and {len(failed) - most:,} more; --json has all")
