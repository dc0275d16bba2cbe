"""A search: real processes as workers on one study file; killed, resumed, judged; read by Optuna alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import TrialState
from private_cluster import wait_until

from slurmopt.config.composition.settings import settings
from slurmopt.errors import ConfigError, RunError
from slurmopt.grid import points_file
from slurmopt.grid.axes import Axis, Column, Interval, Steps
from slurmopt.grid.base_configs import Base
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.points import Points
from slurmopt.grid.records import Records, readable
from slurmopt.grid.search.space import Search, following, suggest
from slurmopt.grid.search.study import StudyFile, make
from slurmopt.job.pack.journal import TaskJournal
from slurmopt.job.pack.points.search import Trials
from slurmopt.job.worker.trial_study import WORKER, Study
from slurmopt.run_folder import events
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.sweeps.definition.search import check_search, left_to_try, make_study

WORKER_SCRIPT = Path(__file__).with_name("search_worker.py")
X = Axis(columns=(Column(key="x", values=Interval(0.0, 10.0)),))


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    return new_sweep(tmp_path)


def new_sweep(root: Path, name: str = "hunt/1", **search: Any) -> SweepFolder:
    """A sweep with `x` between 0 and 10 and a study, as a launch leaves it."""
    folder = SweepFolder(root / "runs" / name)
    folder.path.mkdir(parents=True)
    described = {"method": "random", "trials": 12, "metric": "loss", "seed": 1, **search}
    config = {"x": 0.0, "steps": 3, "returns": True}
    points = Points(axes=[X], bases=[Base(picks=[], config=config, choices={})], hydra=[{}], kind="search", trials=12)
    points_file.save(points, folder.points_file)
    make(folder.study, name, Search(**described))
    return folder


def change(sweep: SweepFolder, **values: Any) -> None:
    """Changes the base of the points."""
    held = json.loads(sweep.points_file.read_text())
    held["bases"][0]["config"].update(values)
    sweep.points_file.write_text(json.dumps(held))


def worker(sweep: SweepFolder, task: int, *words: str, submission: int = 0) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, WORKER_SCRIPT, sweep.path, str(submission), str(task), *words])


def finish(*workers: subprocess.Popen[bytes]) -> None:
    assert [one.wait(timeout=120) for one in workers] == [0] * len(workers)


def study(sweep: SweepFolder) -> optuna.Study:
    """As somebody opens it who has never heard of us."""
    return optuna.load_study(study_name=None, storage=JournalStorage(JournalFileBackend(str(sweep.study))))


@pytest.mark.slow
def test_workers_share_the_trials_and_optuna_reads_them(sweep: SweepFolder) -> None:
    finish(*(worker(sweep, task) for task in range(4)))
    found = study(sweep)
    assert [trial.number for trial in found.trials] == list(range(12))
    assert {trial.state for trial in found.trials} == {TrialState.COMPLETE}
    assert found.best_value == min((trial.params["x"] - 3) ** 2 for trial in found.trials)
    assert len({trial.params["x"] for trial in found.trials}) == 12, "two workers proposed the same"
    for trial in found.trials:
        point = readable(sweep.point(trial.number))
        assert f"x: {trial.params['x']}" in point.config.read_text()
        assert Counter(event["event"] for event in events.read(point.events))["attempt"] == 1


def test_workers_that_ask_for_the_last_trial_at_once_get_one(tmp_path: Path) -> None:
    sweep = new_sweep(tmp_path, trials=1)
    with StudyFile(sweep.study).turn():
        workers = [worker(sweep, task) for task in range(3)]
        wait_until(lambda: all(waits(one) for one in workers), 60, "all workers wait for their turn")
    finish(*workers)
    assert len(study(sweep).trials) == 1


def waits(worker: subprocess.Popen[bytes]) -> bool:
    """Whether it has the study's lock file open."""
    fds = Path(f"/proc/{worker.pid}/fd")
    return any(os.path.basename(os.readlink(fd)) == ".study.journal" for fd in fds.iterdir() if fd.is_symlink())


@pytest.mark.slow
def test_what_is_tried_depends_on_the_seed_and_not_on_the_workers(tmp_path: Path) -> None:
    found = []
    for name, tasks in (("a/1", 1), ("b/1", 3)):
        sweep = new_sweep(tmp_path, name)
        finish(*(worker(sweep, task) for task in range(tasks)))
        found.append([trial.params["x"] for trial in study(sweep).trials])
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("record", [1, 2, 3])
def test_a_worker_killed_after_any_record_goes_on_where_it_was(sweep: SweepFolder, record: int) -> None:
    """1: the trial is there and has no values; 2: it has; 3: it has been told."""
    assert worker(sweep, 0, "--die-at", str(record)).wait(timeout=180) == -signal.SIGKILL
    assert [trial.number for trial in study(sweep).trials] == [0]
    finish(worker(sweep, 0))
    trials = study(sweep).trials
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 12
    assert all(len(os.listdir(sweep.point(trial.number).path)) for trial in trials)


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_a_line_stops_nobody(sweep: SweepFolder) -> None:
    """It held the lock, and half a line of it stays."""
    assert worker(sweep, 0, "--tear-at", "4").wait(timeout=180) == -signal.SIGKILL
    assert not sweep.study.read_bytes().endswith(b"\n")
    finish(worker(sweep, 1), worker(sweep, 2))
    finish(worker(sweep, 0))
    assert [trial.state for trial in study(sweep).trials] == [TrialState.COMPLETE] * 12


@pytest.mark.slow
def test_an_end_that_the_study_was_not_told_of_is_told_and_not_run_again(sweep: SweepFolder) -> None:
    """Killed by the first record after the trial's own end."""
    finish_one = worker(sweep, 0, "--tear-at", "3")
    assert finish_one.wait(timeout=180) == -signal.SIGKILL
    assert study(sweep).trials[0].state == TrialState.RUNNING
    finish(worker(sweep, 0))
    assert study(sweep).trials[0].state == TrialState.COMPLETE
    words = Counter(event["event"] for event in Records(sweep).journal(0))
    assert (words["attempt"], words["end"]) == (1, 1)


@pytest.mark.slow
def test_trials_of_a_worker_that_may_come_back_are_left_alone(sweep: SweepFolder) -> None:
    assert worker(sweep, 0, "--die-at", "2").wait(timeout=180) == -signal.SIGKILL
    finish(worker(sweep, 1))
    left = study(sweep).trials[0]
    assert (left.state, left.user_attrs[WORKER]) == (TrialState.RUNNING, "0-0")
    # Now somebody has written that it is gone for good.
    events.append(sweep.task(0, 0).events, "end", attempt=0, outcome="killed", next=None, by="tend")
    finish(worker(sweep, 0, submission=1), worker(sweep, 1, submission=1))
    trials = study(sweep).trials
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 12
    assert trials[0].user_attrs[WORKER] in ("1-0", "1-1")
    assert Counter(event["event"] for event in Records(sweep).journal(0))["end"] == 1


def test_workers_come_and_go_while_it_runs(sweep: SweepFolder, tmp_path: Path) -> None:
    (tmp_path / "meet").mkdir()
    change(sweep, meet=str(tmp_path / "meet"))
    first = worker(sweep, 0)
    wait_until(lambda: len(study(sweep).trials) > 1, 60, "a second trial")
    finish(first, worker(sweep, 0, submission=1))
    trials = study(sweep).trials
    assert len(trials) == 12
    assert {trial.user_attrs[WORKER] for trial in trials} == {"0-0", "1-0"}


def test_failed_trials_count_and_say_why(sweep: SweepFolder) -> None:
    change(sweep, fail=True)
    finish(worker(sweep, 0))
    trials = study(sweep).trials
    assert [trial.state for trial in trials] == [TrialState.FAIL] * 12
    assert trials[0].user_attrs["error"] == "ValueError: no"


def test_what_has_failed_is_told_once_and_not_retried(sweep: SweepFolder) -> None:
    change(sweep, fail=True)
    assert left_to_try(sweep, Ranges([(0, 11)])) == Ranges([(0, 11)])
    finish(worker(sweep, 0))
    with pytest.raises(RunError, match=r"hunt/1: a search counts a failed trial as tried.* none of 2-3 is left"):
        left_to_try(sweep, Ranges([(2, 3)]))


def test_a_metric_that_is_not_there_fails_the_trial_and_names_those_that_are(tmp_path: Path) -> None:
    sweep = new_sweep(tmp_path, metric="val_los", trials=1)
    finish(worker(sweep, 0))
    (trial,) = study(sweep).trials
    assert trial.state == TrialState.FAIL
    assert trial.user_attrs["error"] == "no number 'val_los' was returned or given to progress(); there was: loss"


def test_the_last_progress_counts_where_nothing_is_returned(tmp_path: Path) -> None:
    sweep = new_sweep(tmp_path, trials=2)
    change(sweep, returns=False)
    finish(worker(sweep, 0))
    for trial in study(sweep).trials:
        assert trial.value == pytest.approx((trial.params["x"] - 3) ** 2 + 10 / 3)


@pytest.mark.parametrize("method", ["asha", "median", "hyperband"])
def test_progress_gives_bad_trials_up_and_good_ones_end(tmp_path: Path, method: str) -> None:
    sweep = new_sweep(tmp_path, method=method, trials=24)
    change(sweep, steps=40)
    finish(worker(sweep, 0), worker(sweep, 1))
    trials = study(sweep).trials
    states = Counter(trial.state for trial in trials)
    assert states[TrialState.PRUNED] + states[TrialState.COMPLETE] == 24
    assert states[TrialState.PRUNED]
    assert states[TrialState.COMPLETE]
    for trial in trials:
        # Beyond step 20 the study is not told of every step: 39 is the last before the end.
        assert max(trial.intermediate_values) == trial.user_attrs.get("pruned", 39)
    said = [json.loads((sweep.point(trial.number).path / "said").read_text()) for trial in trials]
    assert all(one["outcome"] == "finished" for one in said)
    assert [one["pruned"] for one in said] == [trial.state == TrialState.PRUNED for trial in trials]


def test_a_cancelled_point_is_never_started(sweep: SweepFolder) -> None:
    sweep.cancelled.write_text("2-3\n")
    finish(worker(sweep, 0))
    trials = study(sweep).trials
    assert [trial.number for trial in trials if trial.state == TrialState.FAIL] == [2, 3]
    assert not sweep.point(2).path.exists()


def test_a_study_of_another_sweep_is_refused_on_both_sides(sweep: SweepFolder, tmp_path: Path) -> None:
    other = new_sweep(tmp_path, "other/7")
    sweep.study.write_bytes(other.study.read_bytes())
    before = sweep.study.read_bytes()
    with pytest.raises(ConfigError, match=r"study\.journal holds the study of another sweep \(other/7\).*hunt/1"):
        make_study(sweep, typed("sweep.search=tpe", "sweep.trials=3"))
    with pytest.raises(ConfigError, match="another sweep"):
        left_to_try(sweep, Ranges([(0, 11)]))
    with pytest.raises(ConfigError, match="another sweep"):
        Trials(sweep, points_file.load(sweep.points_file), 0, 0, "7_0", TaskJournal(sweep.task(0, 0)))
    assert sweep.study.read_bytes() == before


def test_a_launch_that_broke_off_is_completed_and_a_foreign_file_refused(sweep: SweepFolder) -> None:
    whole = sweep.study.read_bytes()
    sweep.study.write_bytes(whole.splitlines(keepends=True)[0])
    with pytest.raises(ConfigError, match="is not complete"):
        Study(sweep)
    make_study(sweep, typed("sweep.search=tpe", "sweep.trials=3"))
    assert Study(sweep).search.trials == 3
    sweep.study.write_text("not a study\n" * 3)
    with pytest.raises(ConfigError, match=r"study\.journal is not a study of Optuna, or a damaged one"):
        Study(sweep)


def test_each_kind_of_axis_is_asked_for_as_hydra_means_it() -> None:
    axes = [
        Axis(columns=(Column(key="lr", values=Interval(1e-5, 1e-1), tags=("log",)),)),
        Axis(columns=(Column(key="width", values=Interval(1, 4)),)),
        Axis(columns=(Column(key="seed", values=range(0, 10, 3)),)),
        Axis(columns=(Column(key="p", values=Steps("0", "0.1", 4)),)),
        Axis(columns=(Column(key="model", values=["small", "large"], group=True),)),
        Axis(columns=(Column(key="flag", values=[1, True, [64, 64]]),)),
    ]
    tried = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    values = [suggest(axes, tried.ask()) for _ in range(60)]
    assert all(1e-5 <= one["lr"] <= 1e-1 for one in values)
    assert sum(one["lr"] < 1e-3 for one in values) > 20
    assert {one["width"] for one in values} == {1, 2, 3, 4}
    assert {one["seed"] for one in values} == {0, 3, 6, 9}
    assert {one["p"] for one in values} == {0.0, 0.1, 0.2, 0.3}
    assert {one["model"] for one in values} == {"small", "large"}
    assert {repr(one["flag"]) for one in values} == {"1", "True", "[64, 64]"}


def test_a_long_training_tells_the_study_a_few_hundred_times() -> None:
    steps = [1]
    while steps[-1] < 1_000_000:
        steps.append(following(steps[-1]))
    assert steps[:20] == list(range(1, 21))
    assert len(steps) < 300


def typed(*words: str) -> Any:
    from slurmopt.config.composition.compose import compose

    return settings(compose(["task._target_=train.main", *words]))


@pytest.mark.parametrize(
    ("words", "axes", "message"),
    [
        (["sweep.search=tpe"], [], "sweep.search: has nothing to choose from"),
        (["sweep.search=asha"], [X], "sweep.metric: has no value"),
        (
            ["sweep.search=tpe"],
            [Axis(columns=(Column(key="lr", values=Interval(0.0, 1.0), tags=("log",)),))],
            "lr: 0.0 has no logarithm",
        ),
        (["sweep.search=tpe"], [Axis(columns=(Column(key="lr", values=Interval(2.0, 1.0)),))], "lr: interval"),
        (
            ["sweep.search=tpe"],
            [Axis(columns=(Column(key="m", values=["a", "b"], tags=("log",)),))],
            r"m: tag\(log\) needs numbers",
        ),
    ],
)
def test_a_search_that_cannot_be_done_is_one_clear_line(words: list[str], axes: list[Axis], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        check_search(typed("sweep.trials=3", *words), axes)
    assert "\n" not in str(caught.value)


def test_a_command_cannot_be_given_up_and_needs_a_metric() -> None:
    found = typed("sweep.trials=3", "sweep.search=asha", "sweep.metric=loss", "task._target_=null", "task.command=ls")
    with pytest.raises(ConfigError, match=r"asha ends trials from inside progress\(\).*random, tpe"):
        check_search(found, [X])
    found = typed("sweep.trials=3", "sweep.search=tpe", "task._target_=null", "task.command=ls")
    with pytest.raises(ConfigError, match=r"sweep\.metric"):
        check_search(found, [X])


def test_the_checks_do_not_load_optuna() -> None:
    text = "import slurmopt.sweeps.definition.search, slurmopt.job.pack.points.search; "
    text += "import sys; sys.exit('optuna' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
