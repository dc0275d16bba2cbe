"""Stores records of memory in the run folder: those that were asked for, and that of a rank without GPU memory."""

from __future__ import annotations

import contextlib
import json
import pickle
import threading
import time
from typing import Any

from slurmopt import log
from slurmopt.errors import one_line, why_failed
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.heartbeat.training_meter import TrainingMeter
from slurmopt.job.memory.recording import Recording, described, look
from slurmopt.run_folder import captures
from slurmopt.run_folder.access.files import make_folders, replace_bytes
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.captures import MEMORY, OUT_OF_MEMORY, Capture, memory_file
from slurmopt.run_folder.layout import RunFolder

_PRIVATE = 0o600
_PICKLE = 4
"""The protocol that PyTorch's viewer of snapshots reads."""


class MemoryRequests:
    """Answers requests for records of this process."""

    def __init__(self, run: RunFolder, facts: RankFacts, meter: TrainingMeter) -> None:
        self._run, self._facts, self._meter = run, facts, meter

    def begin(self, capture: Capture) -> dict[str, Any]:
        """Begins to record with the next step; returns what there is to say of it."""
        if self._meter.at_step is not None:
            return {"error": "its memory is being recorded already"}

        def done(record: dict[str, Any], snapshot: dict[str, Any] | None) -> None:
            # In a thread: the file system may be slow, and the training goes on.
            threading.Thread(target=self._store, args=(capture, record, snapshot), name="slurmopt-memory").start()

        self._meter.at_step = Recording(capture.steps or 1, self._meter, done).stepped
        return {"state": "recording", "start": round(time.time(), 3)}

    def _store(self, capture: Capture, record: dict[str, Any], snapshot: dict[str, Any] | None) -> None:
        store(self._run, capture, self._facts, record, snapshot)


def store(
    run: RunFolder, capture: Capture, facts: RankFacts, record: dict[str, Any], snapshot: dict[str, Any] | None
) -> None:
    """Writes a record, and for PyTorch's viewer the snapshot. A full disk must not end the training."""
    folder = run.capture(capture.name)
    try:
        result: dict[str, Any] = {"node": facts.node, "error": record.get("error")}
        if "error" not in record:
            data = json.dumps({**record, "rank": facts.rank, "node": facts.node}).encode()
            replace_bytes(folder / memory_file(facts.rank), data, _PRIVATE)
            if snapshot is not None:
                viewed = pickle.dumps(snapshot, protocol=_PICKLE)
                replace_bytes(folder / f"rank-{facts.rank}.pickle", viewed, _PRIVATE)
            result = {"node": facts.node, "file": memory_file(facts.rank), "bytes": len(data)}
        captures.note(run, capture, facts.rank, result)
    except OSError as error:
        why = why_failed(error)
        log.warning(f"the memory of rank {facts.rank} is not recorded: {why}")
        with contextlib.suppress(OSError):  # a disk may have room for a line where it has none for a record
            (folder / f"rank-{facts.rank}.pickle").unlink(missing_ok=True)
            captures.note(run, capture, facts.rank, {"node": facts.node, "error": f"its record is not stored: {why}"})


def note_out_of_memory(run: RunFolder, attempt: int, facts: RankFacts, error: BaseException) -> None:
    """Records what is on the GPU while the error still holds the frames that hold the tensors."""
    try:
        now = look()
        record = {**described(now, now), "steps": 0, "out_of_memory": one_line(str(error))}
        name = f"a{attempt}-{OUT_OF_MEMORY}"
        make_folders(run.traces)
        held(run.capture(name)).mkdir(mode=0o700, exist_ok=True)
        at = round(time.time(), 3)
        others = captures.results(run.capture(name))
        capture = Capture(
            name=name, attempt=attempt, reason=OUT_OF_MEMORY, requested_at=at, start=at, seconds=1.0,
            ranks=sorted({*others, facts.rank}), world_size=facts.world_size, kind=MEMORY,
        )  # fmt: skip
    except Exception as failure:  # noqa: BLE001 - interfaces of torch that are not public; the first error is told
        log.warning(f"what is in GPU memory is not recorded: {one_line(str(failure))}")
        return
    store(run, capture, facts, record, now.snapshot)
    log.info("what was in GPU memory: slurmopt profile memory RUN --stored")
