"""One sampler measures an array task that runs several points; the points have none of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from job.pack_harness import Packer

from slurmopt.errors import RunError
from slurmopt.grid.point_ranges import Ranges
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.find import Selection
from slurmopt.runs.metrics.query import load, of_point

MONITOR = ("--monitor", '{"every":1}')
POINT = """
import os, subprocess, time

def main(config):
    names = [name for name in os.listdir("/proc") if name.isdigit()]
    words = []
    for name in names:
        try:
            words.append(open(f"/proc/{name}/cmdline").read())
        except OSError:
            pass
    found = [line for line in words if "slurmopt.job.monitor" in line and os.environ["SLURMOPT_SWEEP"] in line]
    subprocess.Popen(["sleep", "1000"])  # left behind: the parent ends it, and not the sampler
    time.sleep(0.2)
    return len(found)
"""


@pytest.fixture
def packer(tmp_path: Path) -> Packer:
    sweep = SweepFolder(tmp_path / "runs" / "sweep" / "1")
    sweep.logs.mkdir(parents=True)
    sweep.path.chmod(0o700)
    (code := tmp_path / "code").mkdir()
    return Packer(sweep, code)


@pytest.mark.speed(reason="the sampler has 0.4 s for its last reading")
def test_an_array_task_has_one_sampler_from_its_first_point_to_its_last(packer: Packer) -> None:
    packer.points(4)
    packer.module(POINT)
    assert packer.run(*MONITOR) == 0, packer.output
    assert [packer.end(point)["result"] for point in range(4)] == [1, 1, 1, 1]
    (node,) = packer.task.nodes_with_series(0)
    assert not [path for path in packer.sweep.path.rglob("series") if path.parent != packer.task.path]
    found = load(of_point(Selection(packer.sweep, Ranges.of([2]))))
    assert (found.run.path, found.names) == (packer.task.path, [node])
    (series,) = found.nodes(detail=True)
    assert series.values["rank0.step"][-1] == 4, "the points that have ended"


def test_without_the_word_a_point_has_no_series_and_that_is_said(packer: Packer) -> None:
    packer.points(1)
    packer.module("def main(config):\n    return 1\n")
    assert packer.run() == 0, packer.output
    with pytest.raises(RunError, match="has no series"):
        load(of_point(Selection(packer.sweep, Ranges.of([0]))))
