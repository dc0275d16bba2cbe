"""The check of the GPUs by a small kernel, in a process of its own: the parent itself must never start CUDA."""

from __future__ import annotations

import json
import os
from dataclasses import replace

from slurmopt.folder.outcome import Outcome
from slurmopt.runtime.call import Call
from slurmopt.runtime.health.check import check_gpu
from slurmopt.runtime.pack.fork import forked, release_signals
from slurmopt.runtime.ranks import RankFacts, visible_gpus


def check_gpus(call: Call, facts: RankFacts) -> Outcome | None:
    """None where all GPUs of the array task compute right; once for all points."""
    count = visible_gpus(os.environ)
    if call.health is None or not call.health.gpus or not count:
        return None
    reader, writer = os.pipe()

    def look() -> None:
        release_signals()
        for gpu in range(count):
            if (unfit := check_gpu(call, replace(facts, local_rank=gpu))) is not None:
                os.write(writer, json.dumps(unfit.as_dict()).encode())
                return

    pid = forked(look)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    return Outcome(**json.loads(said)) if said else None
