"""What a tend has done, or would do, with one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slurmopt.errors import one_line
from slurmopt.runs.journal import text, whole
from slurmopt.runs.strays import Stray


@dataclass
class Deed:
    """One thing that was done, or would be."""

    name: str
    id: str
    folder: str
    did: str
    job: str | None = None
    attempt: int | None = None
    cause: str | None = None
    reason: str | None = None
    error: str | None = None

    @property
    def is_problem(self) -> bool:
        """Whether somebody has to see to it."""
        return self.did in ("failed", "not noted")

    def line(self, dry_run: bool) -> str:
        """It, for people."""
        after = f" (attempt {self.attempt}: {self.cause})" if self.attempt is not None and self.cause else ""
        said = {
            "noted": f"was submitted before as job {self.job}; that {'would be' if dry_run else 'is'} noted now",
            "not noted": f"{self.error}; the next tend notes it",
            "submitted": f"would be submitted again{after}" if dry_run else f"submitted again as job {self.job}{after}",
            "ended": f"has ended{after}: {self.reason}",
            "cancelled": "was cancelled with scancel: that is final",
            "failed": f"not brought back: {self.error}",
        }
        return one_line(f"{self.name}/{self.id}: {said[self.did]}")


def deed_of(stray: Stray, did: str, end: dict[str, Any] | None = None, **fields: Any) -> Deed:
    """What was done with `stray`; `end` is of the attempt that it came after."""
    of_end = end or {}
    return Deed(
        stray.run.name,
        stray.run.id,
        str(stray.run.path),
        did,
        attempt=whole(of_end.get("attempt")),
        cause=text(of_end.get("cause")),
        reason=text(of_end.get("reason")),
        **fields,
    )
