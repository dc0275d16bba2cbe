"""`from slurmopt import submit` on a real cluster, typed by a user into a Python of their own."""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Any

TRAIN = """
import slurmopt

def main(config):
    if config.lr < 0:
        raise ValueError("negative")
    slurmopt.progress(2, total=2, loss=config.lr * 2)
    return {"lr": config.lr}

def waits(config):
    while not slurmopt.stop_requested():
        slurmopt.progress(1)

main.makes_process_group = waits.makes_process_group = True
"""
SESSION = """
import asyncio, json, time
from slurmopt import find, submit
from slurmopt.errors import CheckError

small = {"resources.memory": "200M", "monitor.sampler": False}
target = {"task._target_": "train.main"}
try:
    submit(None, target, {"resources.nodes": 99}, lr=1)
except CheckError as error:
    refused = str(error)
run = submit(None, target, small, lr=0.25)
sweep = submit(None, target, small, {"launch.name": "axes"}, lr=[0.5, 0.1, -1], word=["a,b"])
waits = submit(None, small, {"task._target_": "train.waits", "launch.name": "waits"})
for _ in range(50):
    run.status, sweep.status, waits.status, repr(run), run._repr_html_()

async def both():
    return await asyncio.gather(run, sweep)

result, rows = asyncio.run(both())
while waits.status.state != "running":
    time.sleep(0.2)
print(json.dumps({
    "refused": refused, "result": result, "rows": rows, "best": sweep.best("loss").values,
    "states": sweep.status.states,
    "again": find(run.job_id) == run, "point": sweep[1].result(), "logs": sweep.logs(), "sweep": repr(sweep),
    "cancelled": [waits.cancel(), waits.wait(60).state, waits.cancel(), sweep.cancel()], "jobs": len(sweep.job_ids),
}))
"""
COUNTED = """#!/bin/bash
echo >> {calls}
exec {squeue} "$@"
"""


def test_a_python_session_submits_watches_and_cancels(project: Any) -> None:
    (project.path / "train.py").write_text(TRAIN)
    calls, programs = project.path / "calls", project.path / "bin"
    programs.mkdir()
    (programs / "squeue").write_text(COUNTED.format(calls=calls, squeue=shutil.which("squeue")))
    (programs / "squeue").chmod(0o755)
    calls.touch()
    calls.chmod(0o666)
    env = {"XDG_CACHE_HOME": str(project.path / "cache"), "PATH": f"{programs}:{os.environ['PATH']}"}
    done = project.run([sys.executable, "-c", SESSION], timeout=120, env=env)
    said = json.loads(done.stdout)
    assert said["refused"].startswith("resources.nodes: 99 are more than")
    assert said["result"] == {"lr": 0.25}
    assert [(row["point"], row["lr"], row["word"], row["state"]) for row in said["rows"]] == [
        (0, 0.5, "a,b", "finished"), (1, 0.1, "a,b", "finished"), (2, -1, "a,b", "failed"),
    ]  # fmt: skip
    assert said["rows"][0]["loss"] == 1.0
    assert (said["best"], said["states"]) == ({"lr": 0.1, "word": "a,b"}, {"finished": 2, "failed": 1})
    assert (said["again"], said["point"], said["jobs"]) == (True, {"lr": 0.1}, 1)
    assert "ValueError: negative" in said["logs"]
    assert said["sweep"].endswith(": 2 finished · 1 failed>")
    assert said["cancelled"] == [True, "cancelled", False, False]
    assert len(calls.read_text().splitlines()) < 40  # over 250 looks; most are of the submissions and the cancel
