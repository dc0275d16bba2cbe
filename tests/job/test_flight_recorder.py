"""torch's flight recorder is read whichever version of torch has written it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from slurmopt.job.watchdog import flight_recorder
from slurmopt.run_folder.layout import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    folder = RunFolder(tmp_path)
    folder.attempt_logs(0).mkdir(parents=True)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(torch.ones(3))
    yield folder
    dist.destroy_process_group()


@pytest.mark.parametrize("is_older", [False, True])
def test_what_torch_remembers_is_written(folder: RunFolder, is_older: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = c10d._dump_fr_trace
    if is_older:  # simulated: a version of torch whose dump takes no choice
        monkeypatch.setattr(c10d, "_dump_fr_trace", lambda: dump(includeStackTraces=False))
    flight_recorder.write(folder, 0, 0)
    found = pickle.loads(Path(f"{folder.flight_recorder(0)}0").read_bytes())
    assert found["entries"][-1]["profiling_name"] == "gloo:all_reduce"
