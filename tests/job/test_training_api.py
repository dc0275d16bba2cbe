"""What training code imports, outside any job."""

from __future__ import annotations

import subprocess
import sys

import pytest
from job.harness import REPOSITORY

import slurmopt
from slurmopt.errors import JobError


def test_outside_a_job_nothing_happens_and_the_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURMOPT_RUN_FOLDER", "SLURMOPT_PROGRESS", "RANK"):
        monkeypatch.delenv(name, raising=False)
    slurmopt.progress(1, 10, loss=0.5)
    assert slurmopt.stop_requested() is False
    assert slurmopt.rank_facts().world_size == 1
    with pytest.raises(JobError, match="is in no slurmopt run"):
        slurmopt.current_run()


def test_a_progress_whose_reader_is_gone_does_not_hurt(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCAL_RANK", "SLURMOPT_LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURMOPT_PROGRESS", "slurmopt-nobody-listens-here")
    slurmopt.progress(1)


@pytest.mark.parametrize(
    "module", ["slurmopt.job.worker.rank", "slurmopt.job.worker.command", "slurmopt.job.supervisor.verdict"]
)
def test_a_command_loads_only_the_standard_library(module: str) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); import {module}\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    )
    said = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "['__main__', 'slurmopt']" or said.strip() == "['slurmopt']"
    slow = "import sys, slurmopt.job.worker.rank; print([m for m in ('asyncio', 'logging') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", slow], text=True, cwd=REPOSITORY).strip() == "[]"
