"""`scripts/bench sweeps` at a size that says nothing: what it makes is what slurmopt reads, and its arithmetic."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from json_answer import data_of
from private_cluster import clean_environment, require_slurm

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from benchmarks.commands.other_launchers import cancel_all  # noqa: E402
from benchmarks.report import Report  # noqa: E402
from benchmarks.sweeps import launching, looking, running, search, sweeps  # noqa: E402
from benchmarks.sweeps.project import await_end, launched, project  # noqa: E402
from benchmarks.workbench import Workbench, workbench  # noqa: E402

from slurmopt.run_folder import events  # noqa: E402


@pytest.fixture(scope="module")
def bench() -> Iterator[Workbench]:
    """As scripts/bench makes it, with the cluster for sweeps."""
    require_slurm()
    with workbench(slurm=False) as bare, sweeps.cluster(bare) as made:
        yield made


def test_idle_is_what_no_trial_of_a_worker_fills_between_its_first_and_its_last() -> None:
    batches = [("0", 0.0, 4.0), ("1", 0.0, 1.0), ("0", 5.0, 6.0), ("1", 5.0, 9.0)]
    assert search.idle(batches) == pytest.approx(1 - 10 / 15)
    assert search.idle([("0", 1.0, 4.0), ("0", 4.0, 6.0), ("1", 1.0, 9.0)]) == pytest.approx(0)


def test_trials_are_of_uneven_length_and_the_same_each_time() -> None:
    lengths = search.lengths()
    assert lengths == search.lengths()
    assert len(lengths) == search.TRIALS
    assert sum(lengths) / len(lengths) == pytest.approx(search.MEAN, rel=0.01)
    assert max(lengths) > 4 * min(lengths)


def test_a_start_is_from_the_end_of_one_point_to_the_begin_of_the_next() -> None:
    assert running.between("1 2\n2.5 3\n4 9\n") == [0.5, 1.0]


@pytest.mark.parametrize("per_task", [1, 4])
def test_a_made_sweep_is_one_that_status_and_results_understand(tmp_path: Path, per_task: int) -> None:
    sweep = looking.make_sweep(tmp_path / "runs" / "made" / "20261121-120000-aaaa", 200, per_task)
    (told,) = _asked(tmp_path, "status", str(sweep.path))
    assert told["states"] == {"finished": 198, "failed": 2}
    table = _asked(tmp_path, "results", str(sweep.path))
    assert len(table["rows"]) == 200
    assert table["best"] == 198
    assert sum(path.is_file() for path in sweep.point(7).path.rglob("*")) <= 4


def test_a_made_sweep_of_packed_points_is_as_jobs_leave_it(bench: Workbench, tmp_path: Path) -> None:
    swept = ["model=small,large", "seed=range(3)", "sweep.per_task=3"]
    real = launched(bench, project(bench, "test-made"), *swept)
    await_end(bench)
    made = looking.make_sweep(tmp_path / "runs" / "made" / "20261121-120000-aaaa", 6, 3, own_files=False)
    assert _shapes(made.task(0, 1).events) == _shapes(real.task(0, 1).events)
    assert sorted(path.name for path in made.tasks.iterdir()) == sorted(path.name for path in real.tasks.iterdir())


def _shapes(journal: Path) -> set[tuple[str, ...]]:
    """What the lines about points hold, and in which order."""
    return {tuple(event) for event in events.read(journal) if event["event"] == "point"}


def test_without_a_cluster_it_looks_at_sweeps_and_says_what_it_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "COUNT", 10)
    monkeypatch.setattr(looking, "MANY", 2_000)
    report = Report()
    with workbench(slurm=False) as bare:
        sweeps.bench(bare, report, 1)
    assert len(report.targets) == 4 + 2 * len(looking.MANY_WAYS)
    assert report.skipped == ["sweeps that are launched: no cluster"]


def test_a_launch_of_the_swept_words_has_as_many_points(bench: Workbench) -> None:
    sweep = launched(bench, project(bench, "test-launching"), *launching.swept(1_000), "sweep.at_once=1")
    cancel_all(bench)
    assert json.loads(sweep.sweep_file.read_text())["points"] == 1_000


@pytest.mark.parametrize("way", list(running.WORDS))
def test_points_run_to_their_last_result(bench: Workbench, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "COUNT", 4)
    monkeypatch.setattr(running, "POINTS", ("model=small,large", "seed=range(2)"))
    assert running.to_the_last_result(bench, project(bench, "test-running"), running.WORDS[way]) > 0


def test_trials_tell_their_worker_and_their_time(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setattr(search, "TRIALS", 4)
    monkeypatch.setattr(search, "WORKERS", 2)
    cwd = project(bench, "test-search")
    (cwd / "seconds.json").write_text(json.dumps([0.1] * 4))
    trials = search.of_slurmopt(bench, cwd)
    assert len(trials) == 4
    assert {worker for worker, _, _ in trials} <= {"0", "1"}
    assert all(end - begin >= 0.1 for _, begin, end in trials)


def _asked(cwd: Path, *words: str) -> object:
    argv = [sys.executable, "-m", "slurmopt", *words, "--json"]
    done = subprocess.run(
        argv, cwd=cwd, env=clean_environment(), capture_output=True, text=True, check=True, timeout=180
    )
    return data_of(done.stdout)
