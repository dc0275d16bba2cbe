"""One workload's loader, tried with every number of workers, and as `slurmopt tune loader` would: prints JSON.

python loader_trials.py WORKLOAD STEPS_OF_THE_GRID STEPS_OF_A_TRIAL

The step is a sleep, as a GPU's is for the host. So is storage: it answers after four milliseconds.
"""

from __future__ import annotations

import json
import random
import sys
import time
import warnings
import zlib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch.utils.data import default_collate

from slurmopt.grid.search.loader_settings import PREFETCH, Setting, Space, Trial, answer, following
from slurmopt.job.monitor.sources.usable_cpus import usable_cpus
from slurmopt.training import loader

SAMPLES, BATCH, MOST, AGAIN = 1_000_000, 8, 8, 3
GRID = [
    Setting(workers=0),
    *(Setting(workers=workers, prefetch=prefetch) for workers in (1, 2, 3, 4, 6, 8) for prefetch in (None, 4, 8)),
]


class Decoded:
    """Decompresses 2.5 megabytes, for some milliseconds."""

    packed = zlib.compress(random.Random(1).randbytes(80_000) * 32, 1)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(len(zlib.decompress(self.packed)) + index)])


class Stored:
    """Waits for storage."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.004)
        return torch.tensor([float(index)])


class Tiny:
    """In memory."""

    values = torch.zeros(1000, 8)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.values[index % 1000]


def padded(samples: list[torch.Tensor]) -> torch.Tensor:
    """A collate function in Python."""
    rows = [[float(value) * scale for scale in range(900)] for sample in samples for value in sample]
    return torch.tensor(rows)


WORKLOADS: dict[str, tuple[type, Callable[[Any], Any], float]] = {
    "decode": (Decoded, default_collate, 0.010),
    "busy": (Decoded, default_collate, 0.003),
    "storage": (Stored, default_collate, 0.010),
    "tiny": (Tiny, default_collate, 0.004),
    "collate": (Tiny, padded, 0.006),
}
"""Name → dataset, collate function, seconds of a step."""


def measured(name: str, setting: Setting, steps: int) -> Trial:
    """`steps` steps, of which the first quarter is not measured."""
    dataset, collate, seconds = WORKLOADS[name]
    warnings.simplefilter("ignore")  # torch warns of more workers than CPUs
    options = {"prefetch_factor": setting.prefetch} if setting.workers else {}
    batches = loader(dataset(), batch_size=BATCH, num_workers=setting.workers, collate_fn=collate, **options)
    iterator, waited, began, skipped = iter(batches), 0.0, 0.0, steps // 4
    for step in range(steps):
        if step == skipped:
            began, waited, before = time.perf_counter(), 0.0, (batches.costs.service or 0.0) * batches.costs.batches
            computed = batches.costs.fetch_cpu + batches.costs.collate
        at = time.perf_counter()
        next(iterator)
        waited += time.perf_counter() - at
        time.sleep(seconds)
    took, count = time.perf_counter() - began, steps - skipped
    costs = batches.costs
    return Trial(
        **asdict(setting), rate=BATCH * count / took, step=(took - waited) / count, wait=waited / count,
        cpus=usable_cpus(),
        service=((costs.service or 0.0) * costs.batches - before) / count,
        computed=(costs.fetch_cpu + costs.collate - computed) / count,
    )  # fmt: skip


def _text(setting: Setting) -> str:
    return f"{setting.workers} workers, prefetch {setting.prefetch or PREFETCH}"


def main(name: str, grid_steps: int, trial_steps: int) -> None:
    tried: list[Trial] = []
    began = time.perf_counter()
    while (setting := following(tried, Space(low=0, high=MOST, prefetch=(4, 8)))) is not None:
        tried.append(measured(name, setting, trial_steps if setting.workers else trial_steps // 3))
    advice_seconds, found = time.perf_counter() - began, answer(tried)
    assert found is not None
    began = time.perf_counter()
    rates = {cell: measured(name, cell, grid_steps).rate for cell in GRID}
    grid_seconds = time.perf_counter() - began
    best = max(rates, key=lambda setting: rates[setting] or 0.0)
    pair = {"advised": found.best.setting, "best": best}  # the best of many is lucky: both once more, in turns
    again = [{which: measured(name, pair[which], grid_steps).rate for which in pair} for _ in range(AGAIN)]
    answered = {
        "advised": _text(found.best.setting),
        "best": _text(best),
        "again": {which: [rates[which] for rates in again] for which in pair},
        "grid": {_text(setting): rate for setting, rate in rates.items()},
        "seconds": [advice_seconds, grid_seconds],
        "trials": [asdict(trial) for trial in tried],
    }
    print(json.dumps(answered))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
