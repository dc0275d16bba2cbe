"""What all tests share."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import private_cluster
import pytest

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell starts what runs in its background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what the tests start inherits it, and some press Ctrl-C
for _ignored in (signal.SIGQUIT, signal.SIGHUP):  # the second as by nohup
    if signal.getsignal(_ignored) == signal.SIG_IGN:
        signal.signal(_ignored, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test reads the developer's Slurm job, caches or defaults."""
    for name in list(os.environ):
        if name.startswith(("SLURM", "SBATCH", "SRUN", "PMI")) and name != "SLURMOPT_TEST_VENV":
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, with a config of their own, that the test stands in."""
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(
        "# @package _global_\n"
        "lr: 0.1\n"
        "data: {path: '${oc.env:SCRATCH}/set'}\n"
        "resources: {time: 10:00:00}\n"
        "task: {command: 'echo --lr ${lr}'}\n"
    )
    (tmp_path / "train.py").write_text("def main(config):\n    return {'loss': 0.5}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slurm-release", default="", help="every cluster runs this release, such as 24.11; as root")
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden anew; read the diff before you commit"
    )


STARTED_BY = {"cluster": "slurm", "plain_cluster": "slurm", "s3_server": "s3", "mortal_server": "s3", "server": "s3"}
"""Fixture → the marker of the tests that use it, directly or not; others carry the marker themselves."""

SLOW_FILES = frozenset(
    {
        "checkpoint/test_chaos.py",
        "checkpoint/test_compressed.py",
        "checkpoint/test_damage.py",
        "checkpoint/test_differing_ranks.py",
        "checkpoint/test_exact_resume.py",
        "checkpoint/test_fallback.py",
        "checkpoint/test_large_jobs.py",
        "checkpoint/test_needs.py",
        "checkpoint/test_outages.py",
        "checkpoint/test_power_loss.py",
        "checkpoint/test_restore_mends.py",
        "checkpoint/test_several_nodes.py",
        "checkpoint/test_several_ranks.py",
        "checkpoint/test_sharded_optimizers.py",
        "checkpoint/test_storage_kinds.py",
        "hydra_app/test_composed_configs.py",
        "hydra_app/test_hydra_locally.py",
        "job/monitor/test_sampler_loop.py",
        "job/monitor/test_sampler_of_a_pack.py",
        "job/monitor/test_series_writer.py",
        "job/test_children.py",
        "job/test_command_task.py",
        "job/test_coordinated_stop.py",
        "job/test_filled_disk.py",
        "job/test_function_task.py",
        "job/test_heartbeat.py",
        "job/test_many_ranks.py",
        "job/test_pack_survival.py",
        "job/test_rank_measures.py",
        "job/test_rendezvous.py",
        "job/test_stacks.py",
        "job/test_staging_of_ranks.py",
        "job/test_submitit_task.py",
        "job/test_users_of_a_node.py",
        "job/test_watchdog.py",
        "launching/test_local.py",
        "launching/test_local_sweep_faults.py",
        "launching/test_local_sweeps.py",
        "launching/test_profile_running.py",
        "launching/test_project_modules.py",
        "launching/test_supervisor_file.py",
        "ledger/findings/test_real_trainings.py",
        "report/test_page.py",
        "report/test_report_command.py",
        "runs/test_earlier_version.py",
        "runs/test_long_journals.py",
        "runs/test_retry.py",
        "runs/test_swapped_run.py",
        "runs/test_swapped_while_watched.py",
        "runs/test_two_users.py",
        "sweeps/test_same_as_hydra.py",
        "test_bench_checkpoint.py",
        "test_bench_restart.py",
        "test_bench_sweeps.py",
        "test_docs.py",
        "test_odd_input.py",
        "test_quickstart.py",
        "test_wheel.py",
        "training/test_accumulation.py",
    }
)
"""Most tests of these files take seconds: all of them have the marker `slow`. Others carry it themselves."""
SLURM_FILES = frozenset(
    {
        "launching/test_signals_with_cgroups_on_slurm.py",
        "launching/test_survival_chaos.py",
        "launching/test_sweeps_chaos.py",
        "test_slurm_cluster.py",
    }
)
"""Tests of these files start clusters without such a fixture."""

LONGEST_FILES = (
    "launching/test_sweeps_on_slurm.py",
    "runs/test_two_users.py",
    "launching/test_exactly_once.py",
    "launching/test_on_slurm.py",
    "launching/test_local.py",
    "ledger/findings/test_real_trainings.py",
    "runs/test_retry.py",
    "storage/test_s3.py",
    "launching/test_survival_on_slurm.py",
    "launching/test_exit_after_signal_on_slurm.py",
    "test_docs.py",
    "checkpoint/test_outages.py",
    "checkpoint/test_slow_tier.py",
    "launching/test_frameworks_on_slurm.py",
    "launching/test_supervisor_file.py",
    "launching/test_tend_on_slurm.py",
    "launching/test_calls_chaos.py",
    "sweeps/test_full_disk.py",
    "runs/test_runs_on_slurm.py",
    "report/test_report_command.py",
    "checkpoint/test_command.py",
    "test_slurm_cluster.py",
    "test_bench_checkpoint.py",
    "launching/test_survival_chaos.py",
    "checkpoint/test_exact_resume.py",
    "launching/test_search_on_slurm.py",
    "launching/test_ledger_on_slurm.py",
    "launching/test_checkpoint_on_slurm.py",
    "launching/test_imported_on_slurm.py",
    "job/test_coordinated_stop.py",
    "job/test_function_task.py",
    "docs/test_site.py",
)
"""Those over half a minute, the longest first: they begin before all others, so that none of them ends alone."""

MOST_OF_SPEED = 10


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    of_speed = set()
    for item in items:
        file = str(item.path.relative_to(Path(__file__).parent))
        if file in SLOW_FILES:
            item.add_marker("slow")
        if file in SLURM_FILES:
            item.add_marker("slurm")
        for name in set(getattr(item, "fixturenames", ())) & set(STARTED_BY):
            item.add_marker(STARTED_BY[name])
        for marker in item.iter_markers("speed"):
            assert marker.kwargs["reason"], f"{item.nodeid}: why does it depend on the machine's speed?"
            item.add_marker(pytest.mark.flaky(reruns=1))
            of_speed.add(item.nodeid.partition("[")[0])
    if len(of_speed) > MOST_OF_SPEED:
        raise pytest.UsageError(f"{len(of_speed)} tests have the marker speed; at most {MOST_OF_SPEED} may")
    longest_first(items)


def longest_first(items: list[pytest.Item]) -> None:
    """Puts the files that take long before the others: a worker of `--dist loadfile --no-loadscope-reorder` takes the
    next file of this order once it is done with its last."""
    here, waits = Path(__file__).parent, ("slurm", "s3", "slow")
    slow = {item.path for item in items if any(item.get_closest_marker(name) for name in waits)}
    place = {here / name: number for number, name in enumerate(LONGEST_FILES)}
    assert all(path.exists() for path in place), "LONGEST_FILES names a file that is not there"
    items.sort(key=lambda item: (place.get(item.path, len(place)), item.path not in slow))


def pytest_configure(config: pytest.Config) -> None:
    # Fixtures of a session launch before a test has folders of its own.
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="slurmopt-tests-state-")
    config.add_cleanup(lambda: shutil.rmtree(os.environ["XDG_STATE_HOME"], ignore_errors=True))
    release = config.getoption("--slurm-release")
    if release:
        private_cluster.use_release(release)
