"""Makes docs/report.png: runs a small training on this machine, and takes a picture of the page that its end writes.

Needs slurmopt and torch in this Python, and Chromium: `/var/tmp/slurmopt-test-0/bin/python scripts/report_picture.py`.
The training is real, on two CPU ranks for about two minutes: it waits for its input, evaluates, saves, asks once to be
started again, and is killed once.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from report.browser import browser  # noqa: E402

PICTURE = ROOT / "docs" / "report.png"
TRAIN = """
import os, signal, time
import torch
import slurmopt
from slurmopt.checkpoint import Checkpointer

def batches(count):
    for _ in range(count):
        time.sleep(0.04)  # a slow disk
        yield torch.randn(64, 256)

def main(config):
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    run = slurmopt.current_run()
    total = 600
    state = {"model": model, "optimizer": optimizer}
    with Checkpointer(config.checkpoint, run) as checkpointer:
        start = checkpointer.restore(state)
        for step, batch in enumerate(slurmopt.watch(batches(total - start)), start + 1):
            loss = (model(batch) - batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.05)  # a larger model
            slurmopt.progress(step, total, samples=64, loss=loss)
            checkpointer.save(step, state)
            if step % 150 == 0:
                with slurmopt.phase("evaluation"):
                    time.sleep(2)
            if step == 200 and run.attempt == 0:
                raise slurmopt.Requeue
            if step == 430 and run.attempt == 1 and run.rank.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
"""
CONFIG = """# @package _global_
task: {_target_: train.main}
resources: {nodes: 1, tasks_per_node: 2, time: 10}
checkpoint: {shared: {every: 100}}
monitor: {every: 1s}
"""


def main() -> None:
    """Runs the training and takes the picture."""
    with tempfile.TemporaryDirectory(prefix="slurmopt-picture-") as name:
        folder = Path(name)
        (folder / "conf" / "experiment").mkdir(parents=True)
        (folder / "conf" / "experiment" / "picture.yaml").write_text(CONFIG)
        (folder / "train.py").write_text(TRAIN)
        words = ["launch", "+experiment=picture", "launch.backend=local", "launch.wait=true", "launch.name=autoencoder"]
        subprocess.run([sys.executable, "-m", "slurmopt", *words], cwd=folder, check=True)
        (run,) = (folder / "runs" / "autoencoder").glob("2*")
        with browser() as chromium:
            chromium.show(1000, 1180)
            chromium.open(run / "report.html")
            PICTURE.write_bytes(chromium.picture(1000, 1180))
    print(f"{PICTURE}: {PICTURE.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
