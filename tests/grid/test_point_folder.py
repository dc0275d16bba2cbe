"""The folder of a point: whole however often it was begun, private, and found by its name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from slurmopt.errors import ConfigError
from slurmopt.grid import points_file
from slurmopt.grid.axes import Axis, Column
from slurmopt.grid.base_configs import Base
from slurmopt.grid.point_folder import make_point
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.points import Points
from slurmopt.run_folder import events
from slurmopt.run_folder.sweep_layout import SweepFolder


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    path = tmp_path / "runs" / "x" / "id"
    path.mkdir(parents=True)
    path.chmod(0o750)
    points_file.save(points(), path / "points.json")
    return SweepFolder(path)


def points() -> Points:
    axes = [Axis((Column(key="lr", values=[1, 2]),)), Axis((Column(key="seed", values=range(3)),))]
    base = Base(picks=[], config={"lr": 0, "seed": 0, "twice": "${lr}-${seed}"}, choices={})
    return Points(axes=axes, bases=[base], hydra=[{}], folder="${lr}/${seed}", cwd="/where")


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_point_is_made_once(sweep: SweepFolder) -> None:
    run = make_point(sweep, points_file.load(sweep.points_file), 4, "7_1", "token")
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert make_point(sweep, points_file.load(sweep.points_file), 4, "7_1", "token") == run == sweep.point(4)
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before
    assert len(before) == 2
    assert OmegaConf.load(run.config) == {"lr": 2, "seed": 1, "twice": "2-1"}
    assert [event["event"] for event in events.read(run.events)] == ["created", "submitted"]
    assert (sweep.by_name / "2-1").resolve() == run.path.resolve()


def test_what_a_point_has_is_never_replaced(sweep: SweepFolder) -> None:
    run = make_point(sweep, points(), 2, "7_1", "token")
    run.config.write_text("lr: changed by a retry\n")
    make_point(sweep, points(), 2, "8_1", "other")
    assert run.config.read_text() == "lr: changed by a retry\n"


def test_modes_are_those_of_the_sweep(sweep: SweepFolder) -> None:
    run = make_point(sweep, points(), 0, "7_0", None)
    assert run.path.stat().st_mode & 0o777 == 0o750
    sweep.path.chmod(0o700)
    assert make_point(sweep, points(), 1, "7_0", None).logs.stat().st_mode & 0o777 == 0o700


def test_another_submission_is_noted(sweep: SweepFolder) -> None:
    for job in ("7_0", "7_0", "8_0", "8_0"):
        run = make_point(sweep, points(), 0, job, "token")
    submitted = [event["job"] for event in events.read(run.events) if event["event"] == "submitted"]
    assert submitted == ["7_0", "8_0"]


def test_whatever_a_killed_process_left_is_completed(sweep: SweepFolder) -> None:
    """Killed before each system call that changes the file system; the next start makes the same folder."""
    program = (
        "import os, sys; from pathlib import Path\n"
        "from slurmopt.run_folder.sweep_layout import SweepFolder; from slurmopt.grid import points_file\n"
        "from slurmopt.grid.point_folder import make_point\n"
        "sweep = SweepFolder(Path(sys.argv[1])); left = int(sys.argv[2])\n"
        "points = points_file.load(sweep.points_file)\n"
        "def hook(event, arguments):\n"
        "    global left\n"
        "    if event in ('os.mkdir', 'os.rename', 'os.symlink') or event == 'open' and arguments[2] & os.O_CREAT:\n"
        "        left -= 1\n"
        "        if left < 0: os.kill(os.getpid(), 9)\n"
        "sys.addaudithook(hook)\n"
        "make_point(sweep, points, 3, '7_0', 'token')\n"
    )
    made = 0
    whole = SweepFolder(sweep.path.with_name("whole"))
    whole.path.mkdir()
    points_file.save(points(), whole.points_file)
    make_point(whole, points(), 3, "7_0", "token")
    for step in range(20):
        done = subprocess.run([sys.executable, "-c", program, str(sweep.path), str(step)], check=False)
        assert done.returncode in (0, -9)
        made += 1
        if sweep.point(3).events.exists() and (sweep.by_name / "2-0").is_symlink():
            break
        assert step < 19
    make_point(sweep, points(), 3, "7_0", "token")
    assert made > 3
    assert [name for name in everything(sweep.path) if not Path(name).name.startswith(".")] == everything(whole.path)
    assert [event["event"] for event in events.read(sweep.point(3).events)] == ["created", "submitted"]


def test_a_name_that_is_taken_gets_the_number(sweep: SweepFolder) -> None:
    sweep.by_name.mkdir()
    (sweep.by_name / "1-0").symlink_to("../points/00099")
    make_point(sweep, points(), 0, "7_0", None)
    assert os.readlink(sweep.by_name / "1-0-00000") == "../points/00000"


def test_a_damaged_file_says_so(sweep: SweepFolder) -> None:
    text = sweep.points_file.read_text()
    for damaged in (
        "",
        "{",
        "[]",
        text[: len(text) // 2],
        text.replace('"count": 6', '"count": 7'),
    ):
        sweep.points_file.write_text(damaged)
        with pytest.raises(ConfigError, match="damaged"):
            points_file.load(sweep.points_file).config(0, sweep.path)
    sweep.points_file.write_text(text.replace('"format": 1', '"format": 2'))
    with pytest.raises(ConfigError, match="format 2"):
        points_file.load(sweep.points_file)
    with pytest.raises(ConfigError, match="no such file"):
        points_file.load(sweep.path / "gone.json")


def test_a_point_outside_is_refused(sweep: SweepFolder) -> None:
    with pytest.raises(ConfigError, match="there is no point 6; the sweep has 6"):
        make_point(sweep, points(), 6, "7_0", None)


def test_kept_points_are_counted_from_zero() -> None:
    some = Points(axes=points().axes, bases=points().bases, hydra=[{}], kept=Ranges.parse("1,4-5"))
    assert [tuple(some.values(number).values()) for number in range(len(some))] == [(1, 1), (2, 1), (2, 2)]


def test_the_job_needs_no_hydra() -> None:
    code = (
        "import sys, slurmopt.grid.point_folder; print([name for name in sys.modules if name.split('.')[0] == 'hydra'])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
