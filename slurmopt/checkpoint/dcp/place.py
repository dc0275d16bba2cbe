"""Opens the place of DCP checkpoints, and reads the step from a checkpoint_id."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from slurmopt.errors import CheckpointError
from slurmopt.storage.kinds import KINDS, kind_of
from slurmopt.storage.store import Store


def open_store(place: str | os.PathLike[str], options: dict[str, Any]) -> Store:
    """The store on a folder, or on a URL such as s3://BUCKET/PREFIX with the `options` of its kind."""
    kind = kind_of(str(place))
    if not kind.is_folder:
        return kind.open(str(place), **options)
    if options:
        schemes = ", ".join(kind.scheme for kind in KINDS.values() if kind.scheme)
        raise CheckpointError(f"{place} is a folder; {', '.join(options)} is for {schemes} only")
    return kind.open(os.path.abspath(Path(place).expanduser()))


def step_in(checkpoint_id: str | os.PathLike[str] | None) -> int | None:
    """The step in a checkpoint_id: the last integer of its last component (`step-120`, `epoch=3-step=120.ckpt`)."""
    last = Path(str(checkpoint_id)).name.removesuffix(".ckpt") if checkpoint_id is not None else ""
    numbers = re.findall(r"\d+", last)
    return int(numbers[-1]) if numbers else None
