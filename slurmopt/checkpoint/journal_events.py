"""What the journal is told of checkpoints. A journal that cannot be written never stops a save or a restore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurmopt import log
from slurmopt.run_folder import events


def note(journal: Path, event: str, **fields: Any) -> None:
    """Adds an event; where that fails, since the disk that is full may be the journal's, standard error gets it."""
    try:
        events.append(journal, event, **fields)
    except OSError as error:
        words = " ".join(f"{name}={value}" for name, value in fields.items())
        log.warning(f"{event} {words}: the journal cannot be written: {error}")
