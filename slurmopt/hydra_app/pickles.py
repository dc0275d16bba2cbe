"""Pickles that cross from the launch to the jobs and back, read only where nobody else can have written them.

cloudpickle writes them: the function under `@hydra.main` mostly lies in `__main__`, which the job cannot import, so it
has to travel by value. Reading is plain pickle, which runs what it reads: hence the checks.
"""

from __future__ import annotations

import pickle
import zlib
from pathlib import Path
from typing import Any

from slurmopt.run_folder.access.files import replace_bytes
from slurmopt.run_folder.private import read as read


def dumps(value: Any) -> bytes:
    """`value` pickled, and compressed, being mostly Hydra's configs. Raises what cloudpickle raises."""
    import cloudpickle

    return zlib.compress(cloudpickle.dumps(value), level=1)


def loads(content: bytes) -> Any:
    """The value of `dumps`. Only for what `read` has let through."""
    return pickle.loads(zlib.decompress(content))  # noqa: S301


def place(path: Path, content: bytes) -> None:
    """Writes `content` for its owner alone, whole or not at all."""
    replace_bytes(path, content, mode=0o600)
