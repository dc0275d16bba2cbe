"""Pickles that are exchanged between the launch and the jobs. A file is read only if no other user can have written it.

cloudpickle writes them by value, because the function under `@hydra.main` is usually in `__main__`, which the job
cannot import. Unpickling executes code from the file, so its owner and mode are checked first.
"""

from __future__ import annotations

import pickle
import zlib
from pathlib import Path
from typing import Any

from slurmopt.run_folder.access.files import replace_bytes
from slurmopt.run_folder.private import read as read


def dumps(value: Any) -> bytes:
    """Returns `value` pickled and compressed by zlib. Raises the exceptions of cloudpickle."""
    import cloudpickle

    return zlib.compress(cloudpickle.dumps(value), level=1)


def loads(content: bytes) -> Any:
    """Returns the value pickled by `dumps`. Call it only with content returned by `read`, which checks the file."""
    return pickle.loads(zlib.decompress(content))  # noqa: S301


def place(path: Path, content: bytes) -> None:
    """Writes `content` atomically, with mode 0600."""
    replace_bytes(path, content, mode=0o600)
