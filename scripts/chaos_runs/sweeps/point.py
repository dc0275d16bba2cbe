"""The task of the points that `scripts/chaos sweeps` disturbs; a copy of this file is launched as a user's would be.

How long a point takes, whether it saves and whether it leaves when it is told to follows from its number. What it does
it appends to one record outside of the sweep's folder, a JSON object a line and one write each. While it runs it holds
a lock, which goes with its process: who finds it taken runs beside another attempt of the same point.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slurmopt import Requeue, current_run, progress, stop_requested

_STEPS = (1, 1, 2, 5, 12, 20)


def point(config: Any) -> dict[str, Any]:
    """Up to five seconds; returns what its number comes to."""
    return Point(config).run()


def score(seed: int) -> float:
    return seed / 8


class Point:
    """One attempt."""

    def __init__(self, config: Any) -> None:
        run = current_run()
        self.seed, self.attempt = config.seed, run.attempt
        self.folder, self.record = run.folder.path, Path(config.chaos.folder)
        rng = random.Random(f"{config.chaos.seed} {self.seed}")
        self.steps, self.pace = rng.choice(_STEPS), rng.uniform(0.02, 0.25)
        self.saves, self.heeds = rng.random() < 0.5, rng.random() < 0.7

    def run(self) -> dict[str, Any]:
        with self.alone():
            first = self.saved()
            self.say("started", step=first)
            for step in range(first, self.steps):
                time.sleep(self.pace)
                progress(step + 1, self.steps, loss=1.0 / (step + 1))
                self.save(step + 1)
                if self.heeds and stop_requested() and step + 1 < self.steps:
                    self.say("left")
                    raise Requeue("told to stop")
            self.say("done")
        return {"score": score(self.seed), "steps": self.steps}

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with (self.record / "alone" / self.folder.name).open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                self.say("overlap", other=file.read()[-200:])
            file.write(f"attempt {self.attempt} is process {os.getpid()} on {os.environ.get('SLURMD_NODENAME')}; ")
            file.flush()
            yield

    def saved(self) -> int:
        path = self.folder / "saved"
        return int(path.read_text()) if path.exists() else 0

    def save(self, step: int) -> None:
        if self.saves:
            part = self.folder / f"saved.{os.getpid()}"
            part.write_text(str(step))
            part.rename(self.folder / "saved")

    def say(self, said: str, **more: Any) -> None:
        who = {"point": int(self.folder.name), "attempt": self.attempt, "job": os.environ.get("SLURM_ARRAY_JOB_ID")}
        who |= {"pid": os.getpid(), "parent": os.getppid()}
        line = json.dumps({"time": time.time(), "said": said, **who, **more}) + "\n"
        descriptor = os.open(self.record / "record.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, line.encode())
        os.close(descriptor)
