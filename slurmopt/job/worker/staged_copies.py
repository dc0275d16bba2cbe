"""The API of training code on staged sources: `staged`."""

from __future__ import annotations

import os
from pathlib import Path

from slurmopt.config.storage import VARIABLE, variable
from slurmopt.errors import JobError


def staged(name: str) -> Path:
    """The place of the copy of `storage.stage.NAME` on this node: a folder, or a file if the source is one. It is
    read-only, because jobs share it. JobError if nothing of this name was staged, as outside a slurmopt job."""
    place = os.environ.get(variable(name))
    if place:
        return Path(place)
    known = sorted(word.removeprefix(VARIABLE).lower() for word in os.environ if word.startswith(VARIABLE))
    there = f"staged are: {', '.join(known)}" if known else "nothing is staged here"
    raise JobError(f"staged: {name!r} is not in storage.stage of this run; {there}")
