"""The trainings of `bench restart`. A copy of this file is launched as a user's would be: `steps`, `train`.

python training.py calibrate        prints how often the work of a step of 5 ms is done
python training.py plain GIVEN      the steps of `steps`, in a rank without slurmopt
python training.py restore GIVEN    imports torch and restores, and prints how long each took

GIVEN is JSON; a rank's number, and where the ranks meet, come from the environment.
"""

from __future__ import annotations

import time

BEGAN = time.perf_counter()

import torch  # noqa: E402

IMPORTED = time.perf_counter()

import json  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import resource  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402
from array import array  # noqa: E402
from collections.abc import Callable, Mapping  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch.distributed as dist  # noqa: E402

BLOCK = 20
"""Steps, in all of which slurmopt is called, or in none."""
STEP_SECONDS = 0.005
_WIDTH = 96
_GRADIENT = 1024


class Work:
    """A step: small matrix products, between which Python runs, and one all-reduce."""

    def __init__(self, repeats: int) -> None:
        torch.set_num_threads(1)
        self._repeats = repeats
        self._matrix = torch.rand(_WIDTH, _WIDTH) / _WIDTH
        self._gradient = torch.zeros(_GRADIENT)

    def compute(self) -> None:
        for _ in range(self._repeats):
            self._matrix @ self._matrix

    def step(self, wants_to_end: bool) -> bool:
        """Whether rank 0 wants all to end; it learns nothing by another exchange than the step's own."""
        self.compute()
        self._gradient.fill_(float(wants_to_end))
        dist.all_reduce(self._gradient)
        return bool(self._gradient[0])


def steps(config: Any) -> None:
    """Under slurmopt: `progress` and `save` after each step of every other block; nothing is ever due."""
    from slurmopt import current_run, progress
    from slurmopt.checkpoint import Checkpointer

    state, before = {"weights": torch.zeros(1 << 20)}, _threads()
    with Checkpointer(config.checkpoint, current_run()) as checkpointer:

        def tell(step: int) -> None:
            progress(step)
            checkpointer.save(step, state)

        step = checkpointer.restore(state)
        named = {each.native_id for each in threading.enumerate() if each.name.startswith("slurmopt-")}
        ours = Path(config.bench.folder) / f"threads-{dist.get_rank()}.json"
        ours.write_text(json.dumps({"pid": os.getpid(), "threads": sorted(_threads() - before | named)}))
        dist.barrier()
        _step_on(config.bench, tell, step)


def _threads() -> set[int]:
    return set(map(int, os.listdir("/proc/self/task")))


def _step_on(given: Mapping[str, Any], tell: Callable[[int], None] | None, step: int) -> None:
    """Steps until the file `stop` is there. Of two blocks one, by chance, has the calls: heartbeats keep no time with
    them."""
    work, chance, folder = Work(given["repeats"]), random.Random(1), Path(given["folder"])
    first, ends, calls, told, spent = dist.get_rank() == 0, array("d"), [], array("d"), array("d")
    if first:
        (folder / "ready").touch()
    is_over = False
    while not is_over:
        for with_calls in random.Random(chance.random()).sample((True, False), 2):
            calls.append(with_calls)
            wants_to_end = first and (folder / "stop").exists()
            began = time.thread_time()
            for _ in range(BLOCK):
                is_over = work.step(wants_to_end)
                step += 1
                before = time.perf_counter()
                if with_calls and tell is not None:
                    tell(step)
                ends.append(time.perf_counter())
                told.append(ends[-1] - before)
            spent.append(time.thread_time() - began)
            if is_over:
                break
    if first:
        found = {"ends": list(ends), "calls": calls, "told": list(told), "spent": list(spent)}
        (folder / "steps.json").write_text(json.dumps(found))


def train(config: Any) -> None:
    """Under slurmopt, until it is told to stop: a state of `bench.mib`, and steps that leave the cores alone."""
    from slurmopt import current_run, progress
    from slurmopt.checkpoint import Checkpointer

    state, beat = _state(config.bench.mib), torch.zeros(1)
    with Checkpointer(config.checkpoint, current_run()) as checkpointer:
        step = checkpointer.restore(state)
        while True:
            dist.all_reduce(beat)
            step += 1
            state["step"] = step
            progress(step)
            checkpointer.save(step, state)
            time.sleep(config.bench.pace)


def _state(mib: int) -> dict[str, Any]:
    return {"weights": torch.zeros(mib << 18), "step": 0}


def calibrate() -> None:
    work = Work(1)
    laps = []
    for _ in range(500):
        before = time.perf_counter()
        work.compute()
        laps.append(time.perf_counter() - before)
    print(max(1, round(STEP_SECONDS / sorted(laps)[len(laps) // 4])))


def plain(given: dict[str, Any]) -> None:
    dist.init_process_group("gloo")
    _step_on(given, None, 0)
    dist.destroy_process_group()


def restore(given: dict[str, Any]) -> None:
    from slurmopt import current_run
    from slurmopt.checkpoint import Checkpointer

    dist.init_process_group("gloo")
    state = _state(given["mib"])
    with Checkpointer({}, current_run()) as checkpointer:
        dist.barrier()
        before = time.perf_counter()
        step = checkpointer.restore(state)
        restoring = time.perf_counter() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"importing": IMPORTED - BEGAN, "restoring": restoring, "step": step, "peak": peak}))
    sys.stdout.flush()
    os._exit(0)  # the time is taken; what comes now is not looked at


if __name__ == "__main__":
    if sys.argv[1] == "calibrate":
        calibrate()
    else:
        {"plain": plain, "restore": restore}[sys.argv[1]](json.loads(sys.argv[2]))
