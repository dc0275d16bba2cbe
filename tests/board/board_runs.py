"""Run folders made by hand, as launch and jobs would leave them, and squeue's answer as another command has cached
it."""

from __future__ import annotations

import json
import math
import time
from dataclasses import astuple
from pathlib import Path
from typing import Any

from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder
from slurmopt.slurm.cluster import cache
from slurmopt.slurm.queue_entry import QueueEntry


class BoardRun:
    """One run."""

    def __init__(self, base: Path, name: str, run_id: str, launched: float = 3600.0) -> None:
        """`launched`: seconds ago."""
        self.folder = RunFolder(base.absolute() / name / run_id)
        self.folder.make()
        self.folder.config.write_text("resources:\n  nodes: 1\n")
        self.folder.script.write_text("#!/bin/bash\n")
        self._launched = time.time() - launched
        self._number = 0
        self.job = ""
        self.event(0, "created", name=name, id=run_id, backend="sbatch")

    @property
    def label(self) -> str:
        return f"{self.folder.name}/{self.folder.id}"

    def event(self, after: float, word: str, **fields: Any) -> BoardRun:
        """A line of the journal, `after` seconds after the launch."""
        with self.folder.events.open("a") as journal:
            journal.write(json.dumps({"time": round(self._launched + after, 3), "event": word, **fields}) + "\n")
        return self

    def submitted(self, job: str, after: float = 1.0) -> BoardRun:
        self.job = job
        self.event(after - 0.5, "submitting", token=f"slurmopt:{job}", backend="sbatch")
        return self.event(after, "submitted", token=f"slurmopt:{job}", backend="sbatch", job=job)

    def attempt(self, after: float = 60.0, number: int = 0, nodes: str = "node1", log: str = "") -> BoardRun:
        self.folder.attempt_logs(number).mkdir(parents=True)
        self.folder.rank_log(number, 0).write_text(log)
        self.folder.heartbeat(number, 0).parent.mkdir(parents=True)
        self._number = number
        self._began = self._launched + after
        return self.event(after, "attempt", attempt=number, job=self.job, nodes=nodes)

    def beat(self, step: int, total: int | None = None, **metrics: float) -> BoardRun:
        """Rank 0's heartbeat of now; its rate follows from the start of the attempt."""
        now = time.time()
        beat = Heartbeat(
            0, 1, "node1", 1, 10.0, self._began, phase="running", step=step, step_time=now, total_steps=total,
            first_step=0, first_step_time=self._began, metrics=metrics,
        )  # fmt: skip
        beat.write(self.folder.heartbeat(self._number, 0))
        return self

    def end(self, after: float, outcome: str, **fields: Any) -> BoardRun:
        said = {"exit_code": 0, "rank": None, "next": None, **fields}
        return self.event(after, "end", attempt=self._number, outcome=outcome, **said)

    def gpus(self, *percents: float, node: str = "node1") -> BoardRun:
        """What the sampler measured: both GPUs of the node, each ten seconds."""
        path = self.folder.recent_series(self._number, node)
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = ["gpu0.util", "gpu0.memory", "gpu1.util"]
        header = {"slurmopt_series": 1, "node": node, "attempt": 0, "columns": columns, "absent": {}, "facts": {}}
        start = time.time() - 10 * len(percents)
        rows = [[round(start + 10 * at, 2), 10.0, share, 1e9, share] for at, share in enumerate(percents)]
        path.write_text("\n".join(map(json.dumps, [header, *rows])) + "\n")
        return self

    def entry(self, state: str = "RUNNING", reason: str = "") -> QueueEntry:
        """Its job, as squeue lists it."""
        is_running = state == "RUNNING"
        return QueueEntry(
            self.job, state, reason, "node1" if is_running else "", self._launched if is_running else None, 60, 3600,
            0, "node1" if is_running else "", f"slurmopt:{self.job}", str(self.folder.script),
        )  # fmt: skip


def answer(*entries: QueueEntry) -> None:
    """squeue's answer, as a command of this user has cached it a moment ago."""
    cache.write("queue", {"jobs": [astuple(entry) for entry in entries]}, time.time())


def loss(step: int, of: int) -> float:
    """A loss that falls, with some noise."""
    return 1.9 + 2.4 * math.exp(-4 * step / of) + 0.12 * math.sin(step * 1.7) * math.exp(-step / of)


class Board:
    """The runs of a busy user: each state that there is."""

    def __init__(self, base: Path) -> None:
        self.base = base
        made = self._make
        day = 86400.0
        self.llama = made("llama-8b-pretrain", 9 * 3600.0).submitted("481516").attempt(700, nodes="node[1-8]")
        self.vit = made("vit-l16-imagenet", 2.4 * 3600).submitted("481533").attempt(90, nodes="node[11-12]")
        self.whisper = made("whisper-medium-de", 5 * 3600.0).submitted("481520").attempt(30)
        self.whisper.end(9000, "requeue", cause="preemption", reason="preempted by a job of a higher priority")
        self.whisper.event(9001, "requeue", attempt=0, job="481520").attempt(9100, 1, "node7")
        self.pending = made("resnet50-baseline", 1500.0).submitted("481540")
        self.failed = (
            made("clip-vit-b32", 1.1 * 3600).submitted("481530").attempt(50, log=_FAILED_LOG).beat(1200, 80000)
        )
        self.failed.end(700, "failed", exit_code=1, rank=0, error=_ERROR, cause="code", step=1200)
        self.killed = made("t5-summarize", 0.9 * day).submitted("481411").attempt().beat(9000, 10000)
        self.killed.end(7200, "killed", cause="out of memory", error="out of memory on node3 (rank 5)", step=9000)
        self.cancelled = made("bert-probe", 1.5 * day).submitted("481312").attempt().event(600, "cancel")
        self.cancelled.end(660, "killed", cause="cancelled", step=310)
        self.finished = [made(name, (2 + at) * day) for at, name in enumerate(_FINISHED)]
        for at, run in enumerate(self.finished):
            total = 4000 * (1 + at % 3)
            run.submitted(str(481200 - at)).attempt().beat(total, total, val_loss=0.31 + at / 40)
            run.end(9000 + 700 * at, "finished", step=total, metrics={"val_loss": 0.31 + at / 40})
        self.answer()

    def _make(self, name: str, launched: float) -> BoardRun:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(time.time() - launched))
        return BoardRun(self.base, name, f"{stamp}-{sum(map(ord, name)) % 46656 + 46656:x}"[:20], launched)

    def answer(self, *others: QueueEntry) -> None:
        """squeue's answer of now, with the tasks of others."""
        running = [run.entry() for run in (self.llama, self.vit, self.whisper)]
        answer(*running, self.pending.entry("PENDING", "Resources"), *others)

    def beat(self, at: int) -> None:
        """The heartbeats of the running ones, a little further each time."""
        step = 41_000 + 300 * at
        self.llama.beat(step, 100_000, loss=loss(step, 100_000), lr=3e-4, tokens_per_second=412_000.0)
        self.vit.beat(7_100 + 90 * at, 9_360, loss=0.9 + 3 / (2 + at) + 0.05 * math.sin(at), top1=71.2)
        self.whisper.beat(2_000 + 10 * at, 12_000, wer=18.2 - 0.2 * at + 0.6 * math.sin(at * 2.1))
        self.llama.gpus(*(97 + math.sin(at + row) for row in range(24)), node="node1")
        self.vit.gpus(*(64 + 22 * math.sin((at + row) / 2.5) for row in range(24)), node="node11")
        self.whisper.gpus(*(31 + 9 * math.sin((at + row) * 1.3) for row in range(24)), node="node7")


_FINISHED = ("convnext-s", "gpt2-openwebtext", "resnet50-lr-0.1", "resnet50-lr-0.3", "wav2vec2-base", "deit-tiny",
             "mae-vit-b16", "unet-seg", "bert-base-mnli")  # fmt: skip
_ERROR = "RuntimeError: shape '[64, 512]' is invalid for input of size 30720"
_FAILED_LOG = f"""epoch 0 step 1200 loss 4.12
Traceback (most recent call last):
  File "/home/ada/clip/train.py", line 88, in <module>
    logits = model(image, text)
  File "/home/ada/clip/model.py", line 41, in forward
    return features.view(64, 512)
{_ERROR}
"""
