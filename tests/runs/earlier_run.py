"""A run folder as slurmopt left it before its modules moved, and the scripts that started modules by their old names.

In `earlier_version/` @CWD@ stands for the folder of the launch and @PYTHON@ for the Python of the job.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

_KEPT = Path(__file__).parent / "earlier_version"
NAME, ID = "mine", "20261122-120000-beef"


def put(cwd: Path, backend: str) -> Path:
    """Makes the folder below `cwd`/runs; its only attempt failed, and the next one finishes. Returns the run folder."""
    run = cwd / "runs" / NAME / ID
    shutil.copytree(_KEPT / "run", run)
    shutil.copy(_KEPT / "train.py", cwd)
    shutil.copy(_KEPT / ("local.sbatch" if backend == "local" else "slurm.sbatch"), run / "job.sbatch")
    for file in filter(Path.is_file, run.rglob("*")):
        text = file.read_text().replace("@CWD@", str(cwd)).replace("@PYTHON@", sys.executable)
        file.write_text(
            text if backend == "local" else text.replace("local-4242", "4242").replace('"local"', '"sbatch"')
        )
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "failed-once").touch()
    for path in (run.parent.parent, run.parent, run, *run.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o640)
    return run
