"""What a checkpoint needs, and a job may lack: it is known before the first step, or not needed at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_WITHOUT = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):  # simulated: as if it had never been installed
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == {missing!r} else PathFinder.find_spec(name, path, target)

sys.meta_path = [Without if finder is PathFinder else finder for finder in sys.meta_path]
"""

_SAVE_AND_RESTORE = """
import warnings
warnings.filterwarnings("ignore")
import sys, torch
from pathlib import Path
from checkpoint.ranks import alone
from slurmopt.checkpoint import Checkpointer, rng_state
from slurmopt.checkpoint.saved_state import read_state

def state(seed):
    torch.manual_seed(seed)
    model = torch.nn.Linear(300, 300)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 300)).sum().backward()
    optimizer.step()
    table = torch.full((3,), seed).to(torch.bfloat16)
    return {"model": model, "optimizer": optimizer, "rng": rng_state(), "table": {"a": {1, 2}, "b": table}}

folder = Path(sys.argv[1])
before = state(1)
with Checkpointer({"shared": {"every": 1}}, alone(folder, 0)) as saving:
    assert saving.restore(before) == 0
    assert saving.save(1, before) and saving.wait()
drawn = torch.rand(3)
after = state(2)
with Checkpointer({"shared": {"every": 1}}, alone(folder, 1)) as saving:
    assert saving.restore(after) == 1
assert torch.equal(after["model"].weight, before["model"].weight)
assert torch.equal(after["table"]["b"], before["table"]["b"])
assert torch.equal(torch.rand(3), drawn)
assert "numpy" not in sys.modules
print("as it was")
"""


def _run(script: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    here = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": here}, capture_output=True, text=True, check=False)


def test_a_job_without_numpy_restores_what_it_saves(folder: Path) -> None:
    done = _run(_WITHOUT.format(missing="numpy") + _SAVE_AND_RESTORE, folder)
    assert done.stdout.endswith("as it was\n"), done.stdout + done.stderr
