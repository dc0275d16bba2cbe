"""One peer through all that is measured, in a process of its own: python worker.py '{"peer": …}'

Prints one JSON object: seconds of each thing, as lists, and bytes. Every save is preceded by the bare copy of the same
bytes, so that each has a neighbour to be compared with.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from benchmarks.checkpoint.peers import Peer
    from benchmarks.checkpoint.state import Bare, Busy, Training

FIRST_STEPS = 4
RESTORES = 3


class Worker:
    """Collects `found`: name → seconds."""

    def __init__(self, peer: str, gib: float, folder: Path, saves: int, busy: float) -> None:
        from benchmarks.checkpoint.peers import PEERS
        from benchmarks.checkpoint.state import Bare, Busy, Training

        self._peer_name, self._saves, self._busy_seconds = peer, saves, busy
        self.found: dict[str, list[float]] = defaultdict(list)
        self._training: Training = Training(gib)
        self._peer: Peer = PEERS[peer](self._training.state, folder)
        self.found["first steps"] = [self._training.step() for _ in range(FIRST_STEPS)]
        self._bare: Bare = Bare(self._training.tensors(), folder)
        self._busy: Busy = Busy()
        self._step = 0

    @property
    def bytes(self) -> int:
        return self._training.bytes

    def run(self) -> None:
        for number in range(1 + self._saves):
            self._save("first" if number == 0 else "later")
        self._remember_memory()
        for _ in range(RESTORES):
            self.found["direct read"].append(self._bare.read())
            self._peer.restore(self._take)
        self._slow_down()
        self._peer.close()

    def _save(self, which: str) -> None:
        self._settle()
        self.found["direct write"].append(self._bare.write())
        self.found["memcpy"].append(self._bare.copy())
        self._step += 1
        began = time.perf_counter()
        wait = self._peer.save(self._step)
        self.found[f"blocked, {which}"].append(time.perf_counter() - began)
        wait()
        self.found[f"durable, {which}"].append(time.perf_counter() - began)

    def _settle(self) -> None:
        """Everything of the state changes, and nothing is left for the disk to do."""
        self._training.step()
        os.sync()

    def _remember_memory(self) -> None:
        """Apart from what is timed: looking takes time."""
        from benchmarks.checkpoint.memory import peak

        self._settle()
        self._step += 1
        with peak() as found:
            self._peer.save(self._step)()
        self.found["memory"].extend(found)

    def _take(self, load: Any) -> None:
        began = time.perf_counter()
        load()
        self.found["restore"].append(time.perf_counter() - began)

    def _slow_down(self) -> None:
        """Seconds that one save takes from a training that computes on all cores, to the moment it is durable."""
        self._settle()
        before = self._busy.seconds_a_step(self._busy_seconds)
        self._step += 1
        steps, began = 0, time.perf_counter()
        wait = self._peer.save(self._step)

        with ThreadPoolExecutor(1) as pool:
            durable = pool.submit(wait)
            while not durable.done():
                self._busy.step()
                steps += 1
            passed = time.perf_counter() - began
        durable.result()
        after = self._busy.seconds_a_step(self._busy_seconds)
        self.found["lost"].append(max(0.0, passed - steps * (before + after) / 2))


def prefault(gib: float) -> float:
    """Seconds until all pages of the double-buffered arena are there, with nobody in the way."""
    from slurmopt.checkpoint.snapshot.arena import Arena

    arena = Arena(int(gib * (1 << 30)), 2)
    began = time.perf_counter()
    arena.populate()
    arena.settled()
    seconds = time.perf_counter() - began
    arena.close()
    return seconds


def main(given: dict[str, Any]) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.path += given.pop("peers")
    from benchmarks.checkpoint.peers import NEEDS

    if given["peer"] in NEEDS:
        try:
            import_module(NEEDS[given["peer"]])
        except ImportError as error:
            print(json.dumps({"missing": str(error)}))
            return
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    with contextlib.redirect_stdout(sys.stderr):
        early = [prefault(given["gib"])] if given["peer"] == "slurmopt" else []
        worker = Worker(given["peer"], given["gib"], Path(given["folder"]), given["saves"], given["busy"])
        worker.run()
    print(json.dumps({"bytes": worker.bytes, "found": {**worker.found, "pre-fault": early}}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
