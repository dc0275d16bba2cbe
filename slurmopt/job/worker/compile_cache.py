"""Where torch.compile keeps what it has compiled: on the disk of the node, for later attempts and array tasks."""

from __future__ import annotations

import os
from collections.abc import Mapping

from slurmopt import log
from slurmopt.errors import StagingError
from slurmopt.run_folder.variables import Unset, fill

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def compile_cache(scratch: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """The variable for torch, with a private folder in `scratch`, which is `checkpoint.scratch.path`: what is in it is
    executed. Without it, torch's own default stays, a folder in TMPDIR, which Slurm may empty after each job. Nothing
    if the variable is set already; a folder that cannot be had is told, and ends nothing."""
    if VARIABLE in environ or not scratch:
        return {}
    from slurmopt.storage.staging.node_folder import open_root  # here, as few ranks need it

    try:
        return {VARIABLE: open_root(os.path.expanduser(fill(scratch, environ)), "compiled")}
    except (Unset, StagingError) as error:
        log.warning(f"compiled code is not kept for later attempts: {error}")
        return {}
