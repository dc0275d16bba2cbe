"""The Hydra plugins where no Slurm is needed: the sweeper, what a start costs, what is unpickled and what is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra_application
import pytest
from hydra.core.utils import JobReturn, JobStatus

from hydra_plugins.slurmopt_launcher import _points, _wait
from slurmopt.errors import JobError
from slurmopt.grid.records import Records
from slurmopt.hydra_app import pickles, returns
from slurmopt.run_folder import events
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.sweeps.status.ended_points import Ends
from slurmopt.sweeps.status.point_states import Point, SweepStates

OURS, BASIC = "hydra/sweeper=slurmopt", "hydra/sweeper=basic"


@dataclass
class Application:
    path: Path
    environment: dict[str, str]

    def run(self, *words: str, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        return self.python("source/app.py", "-m", *words, before=before)

    def python(self, *words: str, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.environment}
        argv = [*before, sys.executable, *words]
        return subprocess.run(argv, cwd=self.path, env=environment, capture_output=True, text=True, check=False)

    def jobs(self, folder: str) -> list[Any]:
        found = [json.loads(path.read_text()) for path in (self.path / folder).glob("*/seen.json")]
        return sorted([job["num"], job["overrides"], job["port"]] for job in found)


@pytest.fixture
def application(tmp_path: Path) -> Application:
    return Application(tmp_path, hydra_application.place(tmp_path))


def test_our_sweeper_makes_the_jobs_of_hydras_own(application: Application) -> None:
    words = ("lr=0.1,0.2", "db=glob(*)", "+note=choice(x, 'a b')", "seed=7", "hydra.sweeper.max_batch_size=3")
    for sweeper in (OURS, BASIC):
        done = application.run(*words, sweeper, f"hydra.sweep.dir={sweeper[-5:]}")
        assert done.returncode == 0, done.stderr
    assert len(application.jobs(OURS[-5:])) == 8
    assert application.jobs(OURS[-5:]) == application.jobs(BASIC[-5:])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lr=0.1,x"], "Error merging override lr=x"),
        (["db=mysql,postgres", "db.port=1,2,three"], "Error merging override db.port=three"),
        (["db=mysql,nix"], "Could not find 'db/nix'"),
        (["lrr=1,2"], "Could not override 'lrr'"),
    ],
)
def test_our_sweeper_refuses_a_bad_value_before_a_job(application: Application, words: list[str], said: str) -> None:
    done = application.run(*words, OURS, before=hydra_application.UNTRACED)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not application.jobs("out")


def test_long_axes_are_checked_without_composing_each(application: Application) -> None:
    done = application.run("seed=range(3000)", "lr=1.5,x", OURS)
    assert "Error merging override lr=x" in done.stderr
    done = application.run("seed=1,2,3.5", OURS)
    assert "Error merging override seed=3.5" in done.stderr
    assert not application.jobs("out")


def test_the_start_of_any_application_stays_light(application: Application) -> None:
    ask = (
        "import sys; from hydra.core.plugins import Plugins; Plugins.instance();"
        "heavy = {'cloudpickle', 'torch', 'rich', 'jinja2', 'numpy'} & set(sys.modules);"
        "heavy |= {name for name in sys.modules if name.startswith(('slurmopt.sweeps', 'slurmopt.slurm'))};"
        "assert any('slurmopt_launcher' in name for name in Plugins.instance().class_name_to_class);"
        "print(sorted(heavy))"
    )
    done = application.python("-c", ask)
    assert done.stdout == "[]\n", done.stderr


SCRIPT = """
import os
from pathlib import Path

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.singleton import Singleton
from hydra.types import HydraContext

from slurmopt.hydra_app import context

class Known:
    pass

@hydra.main(version_base=None, config_path=None)
def main(config):
    if "file" not in config:  # called by the job
        return [type(one).__module__ for one in (Known(), late())]
    loader = GlobalHydra.instance().hydra.config_loader
    shared = context.Context(
        function=main.__wrapped__, config=config, hydra=HydraContext(loader, None), singletons=Singleton.get_state(),
        cwd=os.getcwd(), source=os.getcwd(), first=0, jobs=[],
    )
    context.pickles.place(Path(config.file), context.dumps(shared))
"""


@pytest.mark.parametrize(
    ("end", "modules", "said"),
    [
        ("late = Known\nif __name__ == '__main__':\n    main()", "['__mp_main__', '__mp_main__']", ""),
        ("late = Known\nmain()", "['__mp_main__', '__mp_main__']", ""),
        ("if __name__ == '__main__':\n    class late: ...\n    main()", "['__mp_main__', '__main__']", ""),
        (
            "late = Known\nos.mkdir('once')\nmain()",
            "['__main__', '__main__']",
            "cannot be run again for its names: FileExistsError",
        ),
    ],
    ids=["guarded", "unguarded", "a name in the guarded block", "runs only once"],
)
def test_a_job_has_the_functions_and_classes_of_the_script(tmp_path: Path, end: str, modules: str, said: str) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "script.py").write_text(SCRIPT + end)
    launch = [sys.executable, "script.py", f"+file={tmp_path}/context", "hydra.run.dir=out"]
    subprocess.run(launch, cwd=tmp_path, check=True)
    ask = (
        "from pathlib import Path; from slurmopt.hydra_app import context;"
        f"print(context.load(Path({str(tmp_path / 'context')!r})).function(dict()))"
    )
    done = subprocess.run([sys.executable, "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == [modules], done.stderr
    assert said in done.stdout


def test_points_tell_people_the_overrides_as_they_were_typed() -> None:
    batch = [
        [f"lr={lr}", "+note='a b'", f"model@net={model}"] for lr, model in ((0.1, "x"), ("1e-4", "y"), ("${z}", "z"))
    ]
    points = _points.points_of(batch, 4, {})
    assert [points.overrides(at) for at in range(3)] == [[words[0], words[2]] for words in batch]
    assert points.values(1) == {"lr": "1e-4", "model@net": "y"}
    assert points.config(2, Path("somewhere")) == {}
    assert _points.points_of([["a=1"], ["b=1"]], 4, {}).values(1) == {"job": 5}


def private(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path / "file"


def test_only_what_nobody_else_could_write_is_unpickled(tmp_path: Path) -> None:
    file = private(tmp_path / "mine")
    pickles.place(file, pickles.dumps(7))
    assert pickles.loads(pickles.read(file)) == 7
    file.chmod(0o620)
    with pytest.raises(JobError, match="can be written by others"):
        pickles.read(file)
    file.chmod(0o600)
    file.parent.chmod(0o770)
    with pytest.raises(JobError, match="can be written by others"):
        pickles.read(file)
    file.parent.chmod(0o700)
    (file.parent / "link").symlink_to(file)
    with pytest.raises(OSError, match="symbolic link"):
        pickles.read(file.parent / "link")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_not_unpickled(tmp_path: Path) -> None:
    file = private(tmp_path / "mine")
    pickles.place(file, pickles.dumps(7))
    os.chown(file, 12345, -1)
    with pytest.raises(JobError, match="belongs to user 12345"):
        pickles.read(file)


def test_the_return_of_an_earlier_attempt_is_not_taken_for_the_last_ones(tmp_path: Path) -> None:
    sweep = SweepFolder(tmp_path / "sweep")
    run_folder = sweep.point(0)
    run_folder.path.mkdir(parents=True, mode=0o700)
    events.append(run_folder.events, "attempt", attempt=0)
    torn = JobReturn(overrides=["lr=1"], status=JobStatus.FAILED, _return_value=RuntimeError("the network was torn"))
    returns.write(run_folder, 0, torn)
    found = SweepStates(sweep, 1, [], Ends(with_metrics=False), points={0: Point(0, "failed", attempt=0)})
    with pytest.raises(RuntimeError, match="the network was torn"):
        _ = _wait._returned(found, 0, ["lr=1"], Records(sweep)).return_value
    found.points[0] = Point(0, "killed", attempt=1, end={"error": "out of memory"})
    left = _wait._returned(found, 0, ["lr=1"], Records(sweep))
    assert (left.status, left.overrides) == (JobStatus.FAILED, ["lr=1"])
    with pytest.raises(JobError, match=r"point 0 of .* killed: out of memory"):
        _ = left.return_value
