"""Where `torch.distributed.checkpoint` is told to save and load, and at which step."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from slurmopt.errors import CheckpointError
from slurmopt.storage.folder import FolderStore
from slurmopt.storage.store import Store


def open_store(place: str | os.PathLike[str], options: dict[str, Any]) -> Store:
    """A folder, or s3://BUCKET/PREFIX with the `options` of `S3Store`."""
    if not str(place).startswith("s3://"):
        if options:
            raise CheckpointError(f"{place} is a folder; {', '.join(options)} is for s3:// only")
        return FolderStore(Path(os.path.abspath(Path(place).expanduser())))
    from slurmopt.storage.s3 import S3Store

    return S3Store(str(place), **options)


def step_in(checkpoint_id: str | os.PathLike[str] | None) -> int | None:
    """The step that it speaks of: the last whole number in its last part (`step-120`, `epoch=3-step=120.ckpt`)."""
    last = Path(str(checkpoint_id)).name.removesuffix(".ckpt") if checkpoint_id is not None else ""
    numbers = re.findall(r"\d+", last)
    return int(numbers[-1]) if numbers else None
