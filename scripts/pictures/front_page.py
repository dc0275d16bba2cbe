"""Makes docs/terminal.svg: a training on two nodes of a private Slurm cluster, one of which dies, as it happens.

Needs root, Slurm's packages, and slurmopt, torch and pyte in the Python that runs it.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "terminal.svg"
TITLE = "A training on two nodes: launched, one node dies, the run continues by itself, and the history says why"
USER = "slurmopt-tester"
TRAIN = """
import time
import slurmopt
from slurmopt.checkpoint import Checkpointer

STEPS = 400

def main(config):
    import torch
    model = torch.nn.Linear(64, 64)
    state = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 1e-3)}
    with Checkpointer(config.checkpoint, slurmopt.current_run()) as checkpointer:
        for step in range(checkpointer.restore(state) + 1, STEPS + 1):
            time.sleep(0.05)
            slurmopt.progress(step, STEPS, loss=3 * step ** -0.35, samples=512)
            checkpointer.save(step, state)
"""
CONFIG = """# @package _global_
task: {_target_: train.main}
checkpoint: {shared: {every: 20}}
monitor: {heartbeat: 1s}
"""
