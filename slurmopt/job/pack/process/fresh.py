"""Restores in a forked rank what a new Python process would have, although the parent has imported user modules."""

from __future__ import annotations

import atexit
import os
import random
import sys
from typing import Any


class Imported:
    """State that imports change and that each process must have for itself. Created before the imports."""

    def __init__(self) -> None:
        random.random()  # noqa: S311 - from here on the state's vector stays for 600 draws, unless somebody seeds it
        self._vector = random.getstate()[1][:-1]
        self._seeded: Any = None
        self._threads: int | None = None
        self.breaks_forks = False
        """Whether an import has asked the driver itself for its GPUs: without initialising torch's CUDA, but a forked
        process cannot use it any more."""

    def before_users_module(self) -> None:
        """torch is there. Its threads would not survive the fork, and whoever waits for them: the parent has none."""
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_num_threads(1)
            self._threads = 1

    def note(self) -> None:
        """Called after all imports: remembers what they have set on purpose."""
        state = random.getstate()
        self._seeded = state if state[1][:-1] != self._vector else None

    @property
    def cuda(self) -> bool:
        """Whether an import has initialised CUDA or another GPU runtime, which a forked process cannot use."""
        torch = sys.modules.get("torch")
        return self.breaks_forks or (torch is not None and bool(torch.cuda.is_initialized()))

    def renew(self, argv: list[str]) -> None:
        """In the forked rank: dice of its own, but where the user's modules seeded them; its threads; its words."""
        atexit._clear()  # the parent's, and those of its imports: they run where they were registered
        if self._seeded is not None:
            random.setstate(self._seeded)
        _renew_numpy()
        self._renew_torch()
        sys.argv = argv

    def _renew_torch(self) -> None:
        """torch's own dice need nothing: each Python starts them with the same seed."""
        torch = sys.modules.get("torch")
        words = os.environ.get("OMP_NUM_THREADS", "")
        if torch is not None and torch.get_num_threads() == self._threads and words.isdigit():
            torch.set_num_threads(int(words))


def _renew_numpy() -> None:
    """numpy's global dice come from the kernel, unless somebody seeded them: numpy forgets its own seed then."""
    numpy_random = sys.modules.get("numpy.random")
    generator = getattr(getattr(numpy_random, "mtrand", None), "_rand", None)
    if numpy_random is None or generator is None:
        return
    bits = generator._bit_generator
    if getattr(bits, "seed_seq", getattr(bits, "_seed_seq", None)) is not None:
        numpy_random.seed()


def limit_gpu_memory(fraction: float) -> None:
    """Limits torch to this fraction of each visible GPU's memory, once CUDA is initialised."""
    torch = sys.modules.get("torch")
    if torch is None:
        return

    def limit() -> None:
        for device in range(torch.cuda.device_count()):
            torch.cuda.set_per_process_memory_fraction(fraction, device)

    torch.cuda._lazy_call(limit)
