"""Writes journal events about checkpoints; a failed write never stops a save or a restore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurmopt import log
from slurmopt.run_folder import events


def note(journal: Path, event: str, **fields: Any) -> None:
    """Appends an event; where that fails (the journal's disk may be full) it is logged as a warning."""
    try:
        events.append(journal, event, **fields)
    except OSError as error:
        words = " ".join(f"{name}={value}" for name, value in fields.items())
        log.warning(f"{event} {words}: the journal cannot be written: {error}")
