"""Makes docs/terminal.svg: a training on two nodes of a private Slurm cluster, one of which dies, as it happens.

Needs root, Slurm's packages, and slurmopt, torch and pyte in the Python that runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from animated_svg import animated_svg
from terminal import Session

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from private_cluster import PrivateCluster, clean_environment, unprivileged_user  # noqa: E402

PICTURE = ROOT / "docs" / "terminal.svg"
TITLE = "A training on two nodes: launched, one node dies, the run continues by itself, and the history says why"
TRAIN = """import json, os, time
from pathlib import Path

import slurmopt

state = Path(os.environ["SLURMOPT_RUN_FOLDER"], "checkpoints", "state.json")
start = json.loads(state.read_text()) if state.exists() else 0
for step in range(start + 1, 1201):
    time.sleep(0.05)
    slurmopt.progress(step, 1200, loss=3 * step**-0.35, samples=512)
    if os.environ["RANK"] == "0" and step % 20 == 0:
        state.parent.mkdir(exist_ok=True)
        state.with_suffix(".new").write_text(json.dumps(step))
        state.with_suffix(".new").replace(state)
"""


def main() -> None:
    """Starts a cluster, records the session and writes the picture."""
    user = unprivileged_user()
    cluster = PrivateCluster.start(Path(f"/tmp/slurmopt-picture-{os.getpid()}"), "--nodes", "4", "--gpus", "8")
    folder = Path(tempfile.mkdtemp(prefix="gpt-", dir="/tmp"))
    try:
        (folder / "train.py").write_text(TRAIN)
        (folder / "bin").mkdir()
        for name, program in {"slurmopt": f"{sys.executable} -P -m slurmopt", "python": sys.executable}.items():
            (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
            (folder / "bin" / name).chmod(0o755)
        subprocess.run(["chown", "-R", user, folder], check=True)
        folder.chmod(0o755)
        session = _recorded(cluster, folder, user)
        PICTURE.write_text(animated_svg(session.frames, session.length, TITLE))
    finally:
        cluster.stop()
        shutil.rmtree(folder)


def _recorded(cluster: PrivateCluster, folder: Path, user: str) -> Session:
    environment = {
        **clean_environment(),
        "SLURM_CONF": str(cluster.conf),
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOME": str(folder),
        "USER": user,
    }
    session = Session(folder, environment, user)
    session.type("slurmopt run -N 2 -G 2 -t 4h -- python train.py", rest=2)
    session.start("slurmopt status --watch")
    session.watch(_runs(folder, attempt=0))
    session.watch(_after(4))
    cluster.kill_node(_last_node(cluster))
    session.watch(_runs(folder, attempt=1), speed=6)
    session.watch(_after(5))
    session.press("q")
    session.type("slurmopt history", rest=8)
    session.close()
    return session


def _runs(folder: Path, attempt: int) -> Callable[[], bool]:
    """Whether rank 0 of that attempt has written a heartbeat."""
    return lambda: any(folder.glob(f"runs/*/*/heartbeat/attempt-{attempt}/rank-0.json"))


def _after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def _last_node(cluster: PrivateCluster) -> str:
    nodes = cluster.run(["squeue", "--noheader", "--format=%N"]).stdout.strip()
    return cluster.run(["scontrol", "show", "hostnames", nodes]).stdout.split()[-1]


if __name__ == "__main__":
    main()
