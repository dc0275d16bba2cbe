"""Names every file that a run leaves.

runs/NAME/ID/
  config.yaml       the composed config; `oc.env` stays unresolved, so that no secret is written
  overrides.yaml    what was typed on the command line
  job.sbatch        the script that was submitted
  supervisor.sh     what it has in common with all others; it runs only the one of its launch
  events.jsonl      the run's journal, one JSON object a line
  logs/             job-JOBID.log of the batch shell; attempt-K/rank-R.log of each rank, and of a hang
                    flight-recorder-rank-R
  heartbeat/        attempt-K/rank-R.json: the step each rank is at, and in the end its outcome; exposed-…: where
                    metrics.prometheus has files
  series/           attempt-K/NODE.jsonl and NODE.recent.jsonl: what the sampler of each node measured
  traces/           NAME/capture.json and NAME/rank-R.json.gz: see `slurmopt.run_folder.captures`
  tensorboard/      event files, where metrics.tensorboard.folder is auto
  profiles/         attempt-K/rank-R.…: the reports of task.profiler
  checkpoints/      step-N/… and commits/ of the Checkpointer; files of the training's own may lie beside them
  result.json       what the function returned, or the command's exit code
  report.html       the report of the run, written when it ended
  environment.txt   versions, git commit and diff, host, GPU
  code/             the code snapshot, where one was asked for
  hostfile          the nodes, where a command starts its own ranks
  python/           a link to slurmopt, where task.python is another Python
  submitit/         the pickles of the submitit backend
  .submission       locked while somebody submits the run
  .submitting       who that is; a link, there only as long
  .unfinished       what a retry found, while it changes config.yaml, job.sbatch and supervisor.sh
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slurmopt.run_folder.access.open_folders import held, renewed

RECORDS = "SLURMOPT_RECORDS"
SUPERVISOR = "supervisor.sh"
_RANK_FILE = re.compile(r"rank-(\d+)\.(?:json|log)")
_ATTEMPT = re.compile(r"attempt-(\d+)")
_NUMBER = re.compile(r"[0-9]+")
_EXPOSED = "exposed-"
_SERIES = re.compile(r"(.+?)(?:\.recent)?\.jsonl")


@dataclass(frozen=True)
class RunFolder:
    """One run's folder. `path` is absolute."""

    path: Path
    records: Path | None = None
    """Where config, journal, logs and heartbeats lie if not in `path`: see `slurmopt.run_folder.archive`."""

    @property
    def id(self) -> str:
        """The id of the run; `ID/17` for point 17 of a sweep, so that NAME/ID names it everywhere."""
        if not self.in_sweep:
            return self.path.name
        number, sweep = self.path.name, self.path.parent.parent.name
        return f"{sweep}/{int(number)}" if _NUMBER.fullmatch(number) else f"{sweep}/{self.path.parent.name}/{number}"

    @property
    def name(self) -> str:
        return (self.path.parents[2] if self.in_sweep else self.path.parent).name

    @property
    def in_sweep(self) -> bool:
        """Whether it is a point of a sweep, or an array task of one: see `slurmopt.run_folder.sweep_layout`."""
        place = self.path.parent
        return place.name in ("points", "tasks") and held(place.parent / "points.json").is_file()

    @property
    def top(self) -> Path:
        """The folder that the run's processes keep open: the run's, or for a point or array task that of its sweep."""
        return self.path.parent.parent if self.in_sweep else self.path

    def lacks(self) -> list[str]:
        """The names of the missing ones of the files that every launch makes."""
        return [path.name for path in (self.config, self.script, self.events) if not os.path.lexists(path)]

    @property
    def kept(self) -> Path:
        """The folder that contains config, journal, logs and heartbeats."""
        return self.records or self.path

    def told(self, path: Path) -> Path:
        """The path at which people find what this process reads at `path`, in this folder."""
        return path

    @property
    def config(self) -> Path:
        """The composed config; an array task of a sweep has none but the sweep's."""
        of_sweep = self.path.parent.name == "tasks" and self.in_sweep
        return (self.path.parent.parent if of_sweep else self.kept) / "config.yaml"

    @property
    def overrides(self) -> Path:
        return self.path / "overrides.yaml"

    @property
    def script(self) -> Path:
        """The job script; one for all points of a sweep."""
        return (self.path.parent.parent if self.in_sweep else self.path) / "job.sbatch"

    @property
    def supervisor(self) -> Path:
        """What the job script has in common with all others, and runs if it is what the launch wrote."""
        return self.script.parent / SUPERVISOR

    @property
    def events(self) -> Path:
        return self.kept / "events.jsonl"

    @property
    def logs(self) -> Path:
        return self.kept / "logs"

    @property
    def heartbeats(self) -> Path:
        return self.kept / "heartbeat"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def micro_batches(self) -> Path:
        """Into how many parts the attempts split micro-batches, after one was too large for the memory."""
        return self.path / "micro-batches.json"

    @property
    def report(self) -> Path:
        """The report on the run, as one page."""
        return self.path / "report.html"

    @property
    def traces(self) -> Path:
        """The captures: a folder for each. See `slurmopt.run_folder.captures`."""
        return self.path / "traces"

    def capture(self, name: str) -> Path:
        """The folder of one capture."""
        return self.traces / name

    @property
    def tensorboard(self) -> Path:
        """The event files of all attempts, for `tensorboard --logdir`."""
        return self.path / "tensorboard"

    def profiles(self, attempt: int) -> Path:
        """The folder with the reports of `task.profiler`."""
        return self.path / "profiles" / f"attempt-{attempt}"

    def all_profiles(self) -> list[Path]:
        """The reports of all attempts, oldest attempt first."""
        top, found = self.path / "profiles", list[Path]()
        for attempt in sorted(_numbers(top, _ATTEMPT)):
            folder = self.profiles(attempt)
            found += [folder / name for name in sorted(os.listdir(held(folder))) if not name.startswith(".")]
        return found

    @property
    def returned(self) -> Path:
        """What a point of a Hydra application returned: a pickle."""
        return self.kept / "return.pickle"

    @property
    def environment(self) -> Path:
        return self.path / "environment.txt"

    @property
    def code(self) -> Path:
        return self.path / "code"

    @property
    def task(self) -> Path:
        """What the ranks of a point run, for a Python that may lack what reading the config needs."""
        return self.kept / "task.json"

    @property
    def package(self) -> Path:
        """Holds a link to slurmopt, for a job's Python that has none."""
        return self.path / "python"

    @property
    def submitit(self) -> Path:
        return self.path / "submitit"

    @property
    def submission(self) -> Path:
        """The lock file of a submission. It is a file of its own, because the script can be replaced meanwhile."""
        return self.path / ".submission"

    @property
    def submitter(self) -> Path:
        """There while the run is being submitted; says by whom. See `slurmopt.runs.submit.lock_file`."""
        return self.path / ".submitting"

    @property
    def unfinished(self) -> Path:
        """The state before a retry: present while a retry runs, and after one that was interrupted."""
        return self.path / ".unfinished"

    def job_log(self, job: str) -> Path:
        """The output of the batch shell and slurmstepd. `job` is Slurm's id, or `%j` in a directive. For an array task
        it lies in the sweep's folder, because a point's folder does not exist yet when Slurm opens it."""
        return (self.path.parent.parent / "logs" if self.in_sweep else self.logs) / f"job-{job}.log"

    def rank_log(self, attempt: int, rank: int) -> Path:
        return self.attempt_logs(attempt) / f"rank-{rank}.log"

    def heartbeat(self, attempt: int, rank: int) -> Path:
        return self.heartbeats / f"attempt-{attempt}" / f"rank-{rank}.json"

    def stop_request(self, attempt: int) -> Path:
        """Exists once the batch shell knows that this attempt must end soon; for ranks that start later."""
        return self.heartbeats / f"attempt-{attempt}" / "stop"

    def stop_agreement(self, attempt: int, which: str) -> Path:
        """Where the ranks agree on where to stop, once rank 0's store is lost."""
        return self.heartbeats / f"attempt-{attempt}" / f"stop-agreement-{which}"

    def staged(self, attempt: int) -> Path:
        """Has a file for each node that has staged the sources of `storage.stage`: node-N.json."""
        return self.heartbeats / f"attempt-{attempt}" / "staged"

    def rendezvous(self, attempt: int) -> Path:
        """The attempt's secret, and in the next line the address of rank 0. Only its owner can read it."""
        return self.heartbeats / f"attempt-{attempt}" / "rendezvous"

    def series(self, attempt: int, node: str) -> Path:
        """What the sampler of a node measured: see `slurmopt.run_folder.series.series`."""
        return self.kept / "series" / f"attempt-{attempt}" / f"{folder_name(node)}.jsonl"

    def recent_series(self, attempt: int, node: str) -> Path:
        """The newest of it, in full detail."""
        return self.series(attempt, node).with_suffix(".recent.jsonl")

    def nodes_with_series(self, attempt: int) -> list[str]:
        """The nodes of which there are series, by the names of their files."""
        try:
            names = os.listdir(held(self.kept / "series" / f"attempt-{attempt}"))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted({match[1] for name in names if (match := _SERIES.fullmatch(name))})

    def exposed(self, attempt: int, name: str) -> Path:
        """Where a file of that name is that the attempt exposes to Prometheus."""
        return self.heartbeats / f"attempt-{attempt}" / f"{_EXPOSED}{name}"

    def all_exposed(self, attempt: int) -> list[Path]:
        """All of these."""
        folder = self.heartbeats / f"attempt-{attempt}"
        try:
            return [folder / name for name in sorted(os.listdir(held(folder))) if name.startswith(_EXPOSED)]
        except OSError:
            return []

    def hang(self, attempt: int) -> Path:
        """The hang that the watchdog found."""
        return self.heartbeats / f"attempt-{attempt}" / "hang.json"

    def stacks_request(self, attempt: int) -> Path:
        """Asks every rank to write the stack traces of its threads into its log."""
        return self.heartbeats / f"attempt-{attempt}" / "stacks"

    def trace_request(self, attempt: int) -> Path:
        """Asks ranks for traces. Among the heartbeats: a rank that replaces its own there soon sees a new file."""
        return self.heartbeats / f"attempt-{attempt}" / "trace"

    def slurm_said(self, attempt: int) -> Path:
        """The output of `scontrol show job` after an attempt that did not end well."""
        return self.heartbeats / f"attempt-{attempt}" / "slurm"

    def verdict(self, attempt: int) -> Path:
        """The verdict that a single rank gave itself, for the batch shell."""
        return self.heartbeats / f"attempt-{attempt}" / "verdict"

    def requeue_wish(self) -> Path:
        """Made by a command that has saved and asks for another attempt: {"step": N}."""
        return self.path / "requeue"

    def attempt_logs(self, attempt: int) -> Path:
        """The folder of an attempt's logs; making it claims the attempt's number."""
        return self.logs / f"attempt-{attempt}"

    def flight_recorder(self, attempt: int) -> Path:
        """The prefix of an attempt's dumps of torch's flight recorder; the rank follows."""
        return self.attempt_logs(attempt) / "flight-recorder-rank-"

    def attempts(self) -> list[int]:
        """The attempts that have started, oldest first. An attempt's number is claimed by making its log folder."""
        return sorted(_numbers(self.logs, _ATTEMPT))

    def ranks_with_logs(self, attempt: int) -> list[int]:
        return sorted(_numbers(self.logs / f"attempt-{attempt}", _RANK_FILE))

    def ranks_with_heartbeats(self, attempt: int) -> list[int]:
        return sorted(_numbers(self.heartbeats / f"attempt-{attempt}", _RANK_FILE))

    def make(self, group_access: bool = False, of_sweep: bool = False) -> None:
        """Makes the folder, private to the user. FileExistsError if it exists. That of a sweep has a folder for
        points."""
        mode = 0o750 if group_access else 0o700
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir(mode=mode)
        parts = (self.logs, self.path / "points") if of_sweep else (self.logs, self.heartbeats, self.checkpoints)
        for part in parts:
            part.mkdir(mode=mode)


def _numbers(folder: Path, pattern: re.Pattern[str]) -> list[int]:
    try:
        names = os.listdir(held(folder))
    except FileNotFoundError:
        return []
    except OSError:
        if not renewed():
            raise
        names = os.listdir(held(folder))
    return [int(match[1]) for name in names if (match := pattern.fullmatch(name))]


def run_folder(path: Path, environ: Mapping[str, str]) -> RunFolder:
    """The run at `path`, for its own processes: RECORDS in their environment says where a packed point has its
    records."""
    records = Path(environ.get(RECORDS) or "/")
    of_point = records.parts[-4:-3] + records.parts[-2:] == ("tasks", "points", path.name)
    return RunFolder(path, records if of_point and records.parents[3] == path.parent.parent else None)


def is_run(path: Path) -> bool:
    """Whether a folder is that of a run: the journal is the first file that a launch writes. It may be something else
    than a file by now; those who read it report that."""
    return os.path.lexists(path / "events.jsonl")


def folder_name(name: str) -> str:
    """`name` as one folder that no shell and no file system minds: letters, digits, `._-`; never empty or hidden."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:100] or "run"
