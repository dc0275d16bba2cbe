"""Lets one thread at a time compose and submit, and puts back the Hydra session that the caller had open."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_LOCK = threading.RLock()
"""Hydra keeps the session in global variables; a submission keeps folders open in the process."""


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Only one thread is in the block. Hydra's global state is the same after it as before."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig

    with _LOCK:
        session, config = GlobalHydra.instance().hydra, HydraConfig.instance().cfg
        try:
            yield
        finally:
            GlobalHydra.instance().hydra, HydraConfig.instance().cfg = session, config
