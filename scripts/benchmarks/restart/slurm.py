"""On the private Slurm: how long ranks take to leave when they are told, and to come back; what a run asks of Slurm.

One run of 2 ranks on 2 nodes is told to stop again and again, in turns by USR1 to its batch shell, as Slurm's
`--signal` does it, and by `scontrol requeue`. Beside each restart two bare ranks import torch and restore a copy of the
same run.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import BenchError, Sample, Samples, median
from benchmarks.report import Report
from benchmarks.restart.processes import peak_mib, wait_until
from benchmarks.restart.steps import RANKS, TRAINING, free_port, launch
from benchmarks.workbench import Workbench
from slurmopt.run_folder import events, heartbeat
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder

MIB = 64
PACE = 0.05
AT_MOST = 2.0
SECONDS_OF_QUIET = 60.0
LEAVES = USR1, REQUEUE = "USR1 to the batch shell", "scontrol requeue"
TO_SAVE, TO_LEAVE, TO_ANSWER = "until all ranks save", "until durable, and all have left", "until the verdict"
BARE_TORCH, BARE_RESTORE = "bare ranks: import torch", "bare ranks: restore"
WHOLE = "granted to first new step"
OF_DAEMONS = ("MESSAGE_NODE_REGISTRATION_STATUS", "REQUEST_STATS_INFO", "REQUEST_PING", "REQUEST_CONTROL_STATUS")
"""slurmd's news of its node, sdiag itself, and what slurmctld asks of itself."""
_RPC = re.compile(r"^\s+([A-Z][A-Z_]+)\s+\(\s*\d+\) count:(\d+)", re.MULTILINE)


@dataclass
class Left:
    """One time that the run was told to stop. Times are seconds since the epoch."""

    how: str
    attempt: int
    told: float
    beats: list[Heartbeat] = field(default_factory=list)

    def seconds(self, run: RunFolder) -> dict[str, float]:
        """From the word on, until each mark."""
        ends = [event["time"] for event in events.read(run.events) if event["event"] == "end"]
        return {
            TO_SAVE: max(beat.phases["saving"] for beat in self.beats) - self.told,
            TO_LEAVE: max(beat.phases["ended"] for beat in self.beats) - self.told,
            TO_ANSWER: ends[self.attempt] - self.told,
        }


@dataclass
class Restarted:
    """A run that is told to stop, and comes back."""

    bench: Workbench
    project: Path
    run: RunFolder
    job: str
    left: list[Left] = field(default_factory=list)
    bare: list[dict[str, float]] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)

    def await_steps(self, attempt: int) -> None:
        """Until all ranks of the attempt have made steps, and said so."""

        def at_work() -> bool:
            beats = self.beats(attempt)
            return len(beats) == RANKS and all((beat.step or 0) > (beat.first_step or 0) for beat in beats)

        wait_until(at_work, 120, f"steps in attempt {attempt} of {self.run.path}")

    def beats(self, attempt: int) -> list[Heartbeat]:
        found = [heartbeat.read(self.run.heartbeat(attempt, rank)) for rank in range(RANKS)]
        return [beat for beat in found if beat is not None]

    def interrupt(self, how: str) -> None:
        """Tells it to stop, and waits until it is back."""
        now = Left(how, len(self.left), time.time())
        argv = ["scancel", "--batch", "--signal=USR1", self.job] if how == USR1 else ["scontrol", "requeue", self.job]
        self.bench.run(argv)
        self.await_steps(now.attempt + 1)
        now.beats = self.beats(now.attempt)
        self.left.append(now)
        self.peaks.append(max(peak_mib(beat.pid for beat in self.beats(now.attempt + 1)), default=0.0))

    def restore_bare(self) -> None:
        """What nobody could save: the slower rank's import of torch, and restore."""
        copy = self.project / "copy" / "run" / self.run.id
        shutil.rmtree(self.project / "copy", ignore_errors=True)
        shutil.copytree(self.run.path, copy)
        env = {
            **self.bench.env, "SLURMOPT_RUN_FOLDER": str(copy), "SLURMOPT_ATTEMPT": str(len(self.left) + 1),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(RANKS),
        }  # fmt: skip
        argv = [self.bench.python, str(TRAINING), "restore", json.dumps({"mib": MIB})]
        ranks = [
            subprocess.Popen(argv, env={**env, **_rank(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for rank in range(RANKS)
        ]
        found = [_answer(rank) for rank in ranks]
        if any(each["step"] <= 0 for each in found):
            raise BenchError("the bare ranks found no checkpoint to restore")
        self.bare.append({name: max(each[name] for each in found) for name in ("importing", "restoring", "peak")})

    def history(self) -> dict[str, Any]:
        words = ["-m", "slurmopt", "history", str(self.run.path), "--json"]
        found: dict[str, Any] = json.loads(self.bench.run([self.bench.python, *words]))["data"]
        return found

    def end(self) -> None:
        self.bench.run([self.bench.python, "-m", "slurmopt", "cancel", str(self.run.path)])
        wait_until(lambda: not self.bench.run(["squeue", "--noheader"]), 60, f"the end of job {self.job}")


def _rank(rank: int) -> dict[str, str]:
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(RANKS)}


def _answer(rank: subprocess.Popen[bytes]) -> dict[str, float]:
    out, err = rank.communicate(timeout=120)
    if rank.returncode:
        raise BenchError(f"a bare rank ended with {rank.returncode}\n{err.decode()[-2000:]}")
    answer: dict[str, float] = json.loads(out)
    return answer


def bench(bench: Workbench, report: Report, runs: int) -> None:
    project = bench.place("restart-slurm")
    shutil.copy(TRAINING, project / "restart_training.py")
    answer = launch(
        bench, project, "train", f"resources.nodes={RANKS}", "resources.tasks_per_node=1", "resources.cpus_per_task=1",
        "resources.memory=1GB", "restart.lead=30s", f"+bench={{mib:{MIB},pace:{PACE}}}",
    )  # fmt: skip
    subject = Restarted(bench, project, RunFolder(Path(answer["run"])), answer["job_ids"][0])
    try:
        subject.await_steps(0)
        _count_rpcs(bench, report, min(SECONDS_OF_QUIET, SECONDS_OF_QUIET * runs / 9))
        for _ in range(max(1, runs // 3)):
            for how in LEAVES:
                subject.interrupt(how)
                subject.restore_bare()
        found = subject.history()
    finally:
        subject.end()
    _tell_leaves(report, subject, found)
    _tell_restarts(report, subject, found)


def _count_rpcs(bench: Workbench, report: Report, seconds: float) -> None:
    before = _rpcs(bench)
    time.sleep(seconds)
    after = _rpcs(bench)
    made = {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}
    of_job = {name: count for name, count in made.items() if name not in OF_DAEMONS}
    print(f"\n  slurmctld was asked within {seconds:.0f} s of training: {_counted(made)}", flush=True)
    what = f"RPCs of the job side in {seconds:.0f} s without events"
    report.target(f"{what} ({_counted(of_job)})" if of_job else what, sum(of_job.values()), 0, "RPCs")
    report.details["RPCs"] = {"seconds": seconds, "made": made, "of the job side": of_job}


def _rpcs(bench: Workbench) -> dict[str, int]:
    """How often slurmctld has been asked what so far."""
    said = bench.run(["sdiag"])
    of_types = said.partition("statistics by message type")[2].partition("statistics by user")[0]
    return {name: int(count) for name, count in _RPC.findall(of_types)}


def _counted(calls: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(calls.items())) or "nothing"


def _tell_leaves(report: Report, subject: Restarted, history: dict[str, Any]) -> None:
    samples: Samples = {}
    for left in subject.left:
        for mark, seconds in left.seconds(subject.run).items():
            samples.setdefault(f"{left.how}, {mark}", []).append(Sample(seconds))
    samples = {f"{how}, {mark}": samples[f"{how}, {mark}"] for how in LEAVES for mark in (TO_SAVE, TO_LEAVE, TO_ANSWER)}
    causes = [attempt["cause"] for attempt in history["attempts"][: len(subject.left)]]
    report.table("told to stop", samples, {f"{USR1}, {TO_LEAVE}": f"a checkpoint of {MIB} MiB on each rank"})
    lost = [attempt["steps_lost"] for attempt in history["attempts"][: len(subject.left)]]
    if None in lost:
        raise BenchError(f"slurmopt history does not tell how many steps were lost: {lost}")
    report.target(f"steps lost in {len(lost)} notified ends ({', '.join(sorted(set(causes)))})", sum(lost), 0, "steps")


def _tell_restarts(report: Report, subject: Restarted, history: dict[str, Any]) -> None:
    back = history["attempts"][1 : len(subject.left) + 1]
    samples: Samples = {
        BARE_TORCH: [Sample(each["importing"], each["peak"]) for each in subject.bare],
        BARE_RESTORE: [Sample(each["restoring"]) for each in subject.bare],
        WHOLE: [Sample(each["restart_seconds"], peak) for each, peak in zip(back, subject.peaks, strict=True)],
    }
    for part in back[0]["restart"]:
        samples[f"  {part}"] = [Sample(each["restart"].get(part, 0.0)) for each in back]
    samples["in Slurm's queue before"] = [Sample(each["queue_seconds"]) for each in back]
    note = f"{RANKS} ranks on {RANKS} nodes, {MIB} MiB"
    report.table("restarts", samples, {WHOLE: note, "in Slurm's queue before": "not ours: most of it cred_expire"})
    extra = [
        each["restart_seconds"] - bare["importing"] - bare["restoring"]
        for each, bare in zip(back, subject.bare, strict=True)
    ]
    report.target(f"{WHOLE}, more than importing torch and restoring", statistics.median(extra), AT_MOST, "s")
    print(f"  the longest: {max(extra):.2f} s; to the first step in all {median(samples[WHOLE]):.2f} s", flush=True)
    report.details["restarts"] = {"extra": extra, "bare": subject.bare, "attempts": history["attempts"]}
