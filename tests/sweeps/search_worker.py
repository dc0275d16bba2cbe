"""A worker of a search without Slurm: asks, runs each trial in a fork as the pack's parent does, and tells.

python search_worker.py SWEEP SUBMISSION TASK [--die-at N | --tear-at N]

--die-at N: kills itself right after its N-th record in the study; --tear-at N: in the middle of writing it.
The trial itself is the function `objective` below, by the values of its config.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend

from slurmopt.grid import points_file
from slurmopt.grid.search.study import StudyFile
from slurmopt.job import failures
from slurmopt.job.facts.rank_facts import launched_facts
from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
from slurmopt.job.pack.journal import TaskJournal
from slurmopt.job.pack.points.search import Trials
from slurmopt.job.point_end import End
from slurmopt.job.worker import current_run
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("sweep", type=Path)
    parser.add_argument("submission", type=int)
    parser.add_argument("task", type=int)
    parser.add_argument("--die-at", type=int)
    parser.add_argument("--tear-at", type=int)
    options = parser.parse_args()
    die_at_record(options.die_at, options.tear_at)
    sweep = SweepFolder(options.sweep)
    own = sweep.task(options.submission, options.task)
    own.path.mkdir(parents=True, exist_ok=True)
    attempt = len(events.read(own.events))
    events.append(own.events, "attempt", attempt=attempt)
    points, job = points_file.load(sweep.points_file), f"7_{options.task}"
    source = Trials(sweep, points, options.submission, options.task, job, TaskJournal(own))
    while (number := source.next()) is not None:
        source.ended(run_trial(source, number))
    events.append(own.events, "end", attempt=attempt, outcome="finished", next=None)
    return 0


def run_trial(source: Trials, number: int) -> End:
    folder = source.make(number)
    attempt = sum(event["event"] == "attempt" for event in events.read(folder.events))
    events.append(folder.events, "attempt", attempt=attempt, worker=os.getpid())
    child = os.fork()
    if child == 0:
        os._exit(in_child(source, number, folder))
    os.waitpid(child, 0)
    told = json.loads((folder.path / "said").read_text())
    end = {key: told[key] for key in ("outcome", "error", "result", "pruned", "metrics")}
    events.append(folder.events, "end", attempt=attempt, cause=told["outcome"], next=None, **end)
    return End(point=number, attempt=attempt, cause=told["outcome"], next=None, **end)


def in_child(source: Trials, number: int, folder: RunFolder) -> int:
    from omegaconf import OmegaConf

    os.environ.update({current_run.FOLDER: str(folder.path), current_run.ATTEMPT: "0"})
    live = HeartbeatWriter(folder.heartbeat(0, 0), launched_facts(os.environ), 10, lambda: None)
    live.start()
    current_run.become(live)
    source.began(number)
    try:
        outcome = failures.finished(objective(OmegaConf.load(folder.config)))
    except Exception as error:  # noqa: BLE001 - as the rank does
        outcome = failures.outcome_of(error)
    live.end(outcome)
    live.close()
    told = {**outcome.as_dict(), "metrics": live._heartbeat.metrics}
    (folder.path / "said").write_text(json.dumps(told))
    return 0


def objective(config: Any) -> Any:
    """A curve that comes down to (x - 3)², the slower the further away; `fail` raises.

    `meet`: a folder; the second trial of a worker ends once another worker has begun one.
    """
    if config.get("fail"):
        raise ValueError("no")
    if config.get("meet"):
        meet(Path(config.meet), str(os.getppid()))
    goal = (config.x - 3) ** 2
    for step in range(1, 1 + config.steps):
        current_run.progress(step, config.steps, loss=goal + 10 / step)
    return {"loss": goal} if config.returns else None


def meet(folder: Path, worker: str) -> None:
    begun = {path.name for path in folder.iterdir()}
    (folder / worker).touch()
    while worker in begun and len(list(folder.iterdir())) < 2:
        time.sleep(0.01)


def die_at_record(die_at: int | None, tear_at: int | None) -> None:
    written = 0
    ours, theirs = StudyFile.append_logs, JournalFileBackend.append_logs

    def append(self: StudyFile, logs: list[dict[str, Any]]) -> None:
        nonlocal written
        ours(self, logs)
        written += 1
        if written == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def tear(self: JournalFileBackend, logs: list[dict[str, Any]]) -> None:
        if written + 1 == tear_at:
            with open(self._file_path, "ab") as file:
                file.write(json.dumps(logs[0]).encode()[:20])
            os.kill(os.getpid(), signal.SIGKILL)
        theirs(self, logs)

    StudyFile.append_logs = append  # type: ignore[method-assign]
    JournalFileBackend.append_logs = tear


if __name__ == "__main__":
    sys.exit(main())
