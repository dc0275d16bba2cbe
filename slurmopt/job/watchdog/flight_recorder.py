"""Writes torch's flight recorder, which holds the last collectives of each rank, to the attempt's logs.

torch writes it when one of NCCL's collectives times out; what else hangs writes it with its stacks. It is read by
`python -m torch.distributed.flight_recorder.fr_trace FOLDER --prefix flight-recorder-rank-`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from slurmopt.run_folder.access.files import replace_bytes
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.layout import RunFolder

_PLACE, _OLD_PLACE = "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
_ON_TIMEOUT = "TORCH_NCCL_DUMP_ON_TIMEOUT"


def ask_for(folder: RunFolder, attempt: int, environ: MutableMapping[str, str]) -> None:
    """Sets where torch writes its flight recorder in this process and its children, unless the user has set it."""
    place = environ.get(_PLACE) or environ.get(_OLD_PLACE)
    if place and os.path.basename(place) != folder.flight_recorder(attempt).name:  # else another attempt's
        return
    environ[_PLACE] = str(folder.flight_recorder(attempt))
    environ.setdefault(_ON_TIMEOUT, "1")


def write(folder: RunFolder, attempt: int, rank: int) -> None:
    """Writes this rank's flight recorder, unless torch did or there is no process group. Raises OSError."""
    target = Path(f"{folder.flight_recorder(attempt)}{rank}")
    recorded = None if held(target).exists() else _recorded()
    if recorded is not None:
        replace_bytes(target, recorded)


def _recorded() -> bytes | None:
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    from torch._C import _distributed_c10d as c10d

    # Builds for GPUs have a recorder of their own for NCCL; it has nothing of gloo's collectives.
    names = ["_dump_fr_trace", "_dump_nccl_trace"]
    if "nccl" in str(distributed.distributed_c10d.get_backend_config()):
        names.reverse()
    dump = next((getattr(c10d, name) for name in names if hasattr(c10d, name)), None)
    if dump is None:
        return None
    try:  # without the stack of each collective: for those torch imports its compiler, which takes a second and more
        return bytes(dump(includeStackTraces=False))
    except TypeError:  # another version of torch, which has no such choice
        return bytes(dump())
