"""The command that launches a point of a sweep again as a run of its own."""

from __future__ import annotations

import re
import shlex

from slurmopt.errors import ConfigError, one_line
from slurmopt.grid.points import Points
from slurmopt.sweeps.results.outcomes import Row

_OF_THE_SWEEP = re.compile(r"\+{0,2}(sweep\b.*|launch\.(id|run|json|dry_run)|hydra\.(sweeper|sweep)\b.*)")
"""Keys that say how the sweep was launched, not what a point is."""

_LONGEST = 8000
"""Characters of a command."""


def overrides(points: Points, row: Row) -> list[str] | None:
    """All overrides of the point; None where its values are no longer known."""
    try:
        line = points.line_of(row.point, row.values if points.kind == "search" else None)
    except (ConfigError, LookupError):
        return None
    if not all(isinstance(word, str) for word in line):  # a damaged file, or one of another user
        return None
    return [word for word in line if not _OF_THE_SWEEP.fullmatch(word.lstrip("~").partition("=")[0])]


def command(points: Points, row: Row) -> str | None:
    """The command, in one line; None where there is none. Of a Hydra application only the overrides."""
    words = overrides(points, row)
    if not words:
        return None
    line = shlex.join(words if points.kind == "hydra" else ["slurmopt", "launch", *words])
    return line if line == one_line(line) and len(line) <= _LONGEST else None
