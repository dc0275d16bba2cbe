"""One switch for a training that computes the same bits each time."""

from __future__ import annotations

import os
import random

import torch

from slurmopt.errors import JobError

_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_VALID = (":4096:8", ":16:8")
"""Of cuBLAS, "Results Reproducibility": with these its results do not depend on streams."""


def deterministic(seed: int, *, warn_only: bool = False) -> None:
    """Seeds Python, NumPy and torch with `seed`; makes torch choose algorithms that compute the same bits each time.

    Call it before the model is made and anything is computed on a GPU. `warn_only`: operations without such an
    algorithm warn instead of raising RuntimeError. It costs speed: cuDNN tries no algorithms, and some are slower.
    Ranks that shall draw different numbers, as for dropout, seed torch again afterwards, with their rank. Raises
    JobError if CUDA runs already without the setting that cuBLAS needs.
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise JobError(f"deterministic: the seed is {seed!r}; valid: a whole number")
    if os.environ.get(_WORKSPACE) not in _VALID:
        if torch.cuda.is_initialized():
            raise JobError(
                f"deterministic: CUDA runs already without {_WORKSPACE}; call it before the first use of a GPU"
            )
        os.environ[_WORKSPACE] = _VALID[0]
    random.seed(seed)
    try:
        import numpy as np
    except ImportError:
        pass
    else:
        np.random.seed(seed % 2**32)  # the generator that other libraries use
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    torch.backends.cudnn.benchmark = False
