"""The run folder of a job that slurmopt did not launch, but measures: `slurmopt monitor` makes it and keeps its
journal."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmopt.restart import causes
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import replace_text
from slurmopt.run_folder.layout import RunFolder, folder_name
from slurmopt.run_folder.outcome import FINISHED, KILLED, USER_ERROR
from slurmopt.run_folder.process import machine, started_at
from slurmopt.runs.journal import FOREIGN
from slurmopt.runs.ownership import make_place
from slurmopt.runs.submit.new_folder import folder_errors


@dataclass(frozen=True)
class Allocation:
    """What Slurm gave this job, by its environment; outside of a job this machine."""

    job: str
    nodes: str
    node_count: int
    gpus: int | None
    """Of this node; None where the environment does not tell."""
    cpus: str | None
    """Of each node, as Slurm writes it: `64(x2),32`."""


def allocation(environ: Mapping[str, str]) -> Allocation:
    """Reads the environment of a batch script."""
    job = environ.get("SLURM_JOB_ID")
    if job is None:
        return Allocation(f"local-{os.getpid()}", os.uname().nodename, 1, _listed(environ), str(os.cpu_count() or 1))
    if array := environ.get("SLURM_ARRAY_JOB_ID"):
        job = f"{array}_{environ.get('SLURM_ARRAY_TASK_ID', '0')}"
    count = environ.get("SLURM_JOB_NUM_NODES", "1")
    return Allocation(
        job=job,
        nodes=environ.get("SLURM_JOB_NODELIST") or os.uname().nodename,
        node_count=int(count) if count.isdecimal() else 1,
        gpus=_listed(environ),
        cpus=environ.get("SLURM_JOB_CPUS_PER_NODE") or environ.get("SLURM_CPUS_ON_NODE"),
    )


def _listed(environ: Mapping[str, str]) -> int | None:
    """The GPUs of this node: as Slurm counts them, else as they are listed."""
    if (count := environ.get("SLURM_GPUS_ON_NODE", "")).isdecimal():
        return int(count)
    listed = environ.get("SLURM_JOB_GPUS") or environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return len([word for word in listed.split(",") if word.strip()])
    if "SLURM_JOB_ID" in environ:
        return 0
    return len([name for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name)])


def make(folder: Path, name: str, command: Sequence[str], given: Allocation) -> RunFolder:
    """Makes the folder. FolderError where that cannot be."""
    path = (
        folder.expanduser().absolute() / folder_name(name) / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"
    )
    run = RunFolder(path)
    with folder_errors(path):
        make_place(path.parent)
        run.make()
        replace_text(run.config, json.dumps(_config(name, command, given), indent=1) + "\n")
        replace_text(run.overrides, "[]\n")
        events.append(run.events, "created", name=name, id=run.id, cwd=os.getcwd(), backend=FOREIGN)
        run.attempt_logs(0).mkdir(mode=0o700)
        run.heartbeat(0, 0).parent.mkdir(mode=0o700)
    return run


def begin(run: RunFolder, given: Allocation, pid: int) -> None:
    """Notes that the attempt has started. `pid`: of the process that runs the command, whose arguments name the folder:
    outside of Slurm it tells whether the run is alive. OSError."""
    process: dict[str, Any] = {}
    if given.job.startswith("local-"):
        process = {"pid": pid, "pid_started": started_at(pid), "host": socket.gethostname(), "machine": machine()}
    events.append(run.events, "submitted", backend=FOREIGN, job=given.job, **process)
    counted = {"gpus": given.gpus, "cpus": given.cpus}
    told = {name: count for name, count in counted.items() if count is not None}
    events.append(run.events, "attempt", attempt=0, job=given.job, nodes=given.nodes, **told)


def _config(name: str, command: Sequence[str], given: Allocation) -> dict[str, Any]:
    """What is known of the job, as a config has it: YAML reads JSON."""
    return {
        "launch": {"name": name, "backend": FOREIGN},
        "task": {"command": list(command), "per": "job"},
        "resources": {"nodes": given.node_count, "gpus_per_node": given.gpus},
    }


def end(run: RunFolder, status: int) -> None:
    """Notes how the command ended. OSError."""
    if status == 0:
        outcome, cause, error = FINISHED, causes.FINISHED, None
    elif status > 128 and status - 128 in set(signal.Signals):
        outcome, cause, error = KILLED, causes.KILLED, f"killed by {signal.Signals(status - 128).name}"
    else:
        outcome, cause, error = USER_ERROR, causes.USER_ERROR, f"exit status {status}"
    fields = {"outcome": outcome, "exit_code": status, "rank": None, "node": None, "error": error, "cause": cause}
    events.append(run.events, "end", attempt=0, **fields, next=None, reason="slurmopt did not launch this job")
