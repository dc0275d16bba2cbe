"""supervisor.sh beside job.sbatch: only the one that the launch wrote runs, and templates of earlier versions go on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from json_answer import data_of
from private_cluster import clean_environment

from slurmopt.run_folder import supervisor_file
from slurmopt.run_folder.layout import RunFolder
from slurmopt.slurm.script.render import supervisor

EARLIER = Path(__file__).parent / "earlier_templates" / "job.sbatch.j2"
"""job.sbatch.j2 of the version before supervisor.sh, which includes supervisor.sh.j2 and array.sh.j2."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def launch(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "slurmopt", "launch", "task.command=[echo, mine]", "launch.name=mine", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def local(*words: str) -> Path:
    """Launches a run on this machine, and returns its folder."""
    done = launch("launch.backend=local", "launch.wait=true", "launch.id=1", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return Path("runs/mine/1").absolute()


def next_attempt(run: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The script starts again, as Slurm starts what it holds, and waits a second, not sixty, for the right file."""
    script = (run / "job.sbatch").read_text()
    assert "slurmopt_patience=60" in script
    return subprocess.run(
        ["bash", "-s"],
        input=script.replace("slurmopt_patience=60", "slurmopt_patience=1"),
        env={**clean_environment(), **variables},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_a_launch_writes_it_as_it_is_shipped(folder: Path) -> None:
    run = local()
    assert (run / "supervisor.sh").read_text() == supervisor()
    assert supervisor().isascii()
    assert supervisor_file.sha256(supervisor()) in (run / "job.sbatch").read_text()
    assert "slurmopt_signal() {" not in (run / "job.sbatch").read_text()
    assert next_attempt(run).returncode == 0


def missing(file: Path) -> None:
    file.unlink()


def changed(file: Path) -> None:
    file.write_text(file.read_text() + "touch foreign\n")


def fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def endless(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def folder_instead(file: Path) -> None:
    file.unlink()
    file.mkdir()


def of_another_user(file: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("NOT TESTED: giving a file to another user needs root")
    changed(file)
    os.chown(file, 65534, 65534)


@pytest.mark.parametrize("damage", [missing, changed, fifo, endless, folder_instead, of_another_user])
def test_nothing_but_what_the_launch_wrote_runs(folder: Path, damage: Callable[[Path], None]) -> None:
    run = local()
    damage(run / "supervisor.sh")
    done = next_attempt(run)
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr == (
        f"slurmopt: {run}/supervisor.sh is missing, or not what the launch wrote: "
        "the job ends, and uses nothing there\n"
    )
    assert not (run / "logs" / "attempt-1").exists()
    assert not (folder / "foreign").exists()


def test_a_fifo_whose_writer_says_nothing_holds_nobody_up(folder: Path) -> None:
    run = local()
    fifo(run / "supervisor.sh")
    writer = os.open(run / "supervisor.sh", os.O_RDWR)
    assert next_attempt(run).returncode == 69
    os.close(writer)


def test_what_replaces_it_after_the_check_does_not_run(folder: Path) -> None:
    run = local()
    programs = folder / "bin"
    programs.mkdir()
    (programs / "sha256sum").write_text(
        f"#!/bin/bash\n/usr/bin/sha256sum; echo 'touch {folder}/foreign' > {run}/supervisor.sh\n"
    )
    (programs / "sha256sum").chmod(0o755)
    done = next_attempt(run, PATH=f"{programs}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert (run / "supervisor.sh").read_text() == f"touch {folder}/foreign\n"
    assert not (folder / "foreign").exists()
    assert (run / "logs" / "attempt-1" / "rank-0.log").read_text() == "mine\n"


def test_the_options_of_the_shell_around_the_job_change_nothing(folder: Path) -> None:
    run = local()
    done = next_attempt(run, SHELLOPTS="nounset:noglob", BASHOPTS="nullglob:failglob")
    assert done.returncode == 0, done.stderr


def test_it_comes_late_where_the_node_still_has_an_old_folder(folder: Path) -> None:
    """The script looks again each second; its `sleep` puts the file back here."""
    run = local()
    os.rename(run / "supervisor.sh", folder / "later")
    programs = folder / "bin"
    programs.mkdir()
    (programs / "sleep").write_text(f"#!/bin/bash\nmv {folder}/later {run}/supervisor.sh\n")
    (programs / "sleep").chmod(0o755)
    done = next_attempt(run, PATH=f"{programs}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr


def test_the_dry_run_names_it_and_prints_it_where_asked(folder: Path) -> None:
    words = ("launch.backend=local", "launch.id=1")
    script, full, as_json = (
        launch(*words, "launch.dry_run=true"),
        launch(*words, "launch.dry_run=full"),
        launch(*words, "launch.dry_run=full", "launch.json=true"),
    )
    naming = [line for line in script.stderr.splitlines() if "supervisor.sh" in line]
    assert len(naming) == 1
    assert f"{folder}/runs/mine/1/supervisor.sh" in naming[0]
    assert "launch.dry_run=full" in naming[0]
    assert full.stdout == f"{script.stdout}\n{supervisor()}"
    answer = data_of(as_json.stdout)
    assert (answer["script"], answer["supervisor"]) == (script.stdout, supervisor())
    assert not (folder / "runs").exists()
    assert (local() / "job.sbatch").read_text() == script.stdout
    wrong = launch(*words, "launch.dry_run=ful")
    assert wrong.returncode == 2
    assert "launch.dry_run: 'ful' is not valid (did you mean 'full'?); valid: true, false, full" in wrong.stderr


@pytest.mark.parametrize("word", ["yes", "'on'", "True"])
def test_the_words_of_a_boolean_still_ask_for_a_dry_run(folder: Path, word: str) -> None:
    done = launch("launch.backend=local", f"launch.dry_run={word}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("#!/bin/bash\n")
    assert not (folder / "runs").exists()


def test_a_template_of_the_version_before_has_all_in_the_script(folder: Path) -> None:
    (folder / "mine.sbatch.j2").write_text(EARLIER.read_text())
    run = local("launch.template=mine.sbatch.j2")
    (run / "supervisor.sh").unlink()
    script = (run / "job.sbatch").read_text()
    assert "slurmopt_signal() {" in script
    done = subprocess.run(["bash", "-s"], input=script, env=clean_environment(), text=True, timeout=180, check=False)
    assert done.returncode == 0
    assert (run / "logs" / "attempt-1" / "rank-0.log").read_text() == "mine\n"


def test_a_supervisor_of_ones_own_beside_the_template_is_used(folder: Path) -> None:
    """As when job.sbatch.j2 included it: the template that extends it takes it from its own folder."""
    (folder / "mine.sbatch.j2").write_text('{% extends "job.sbatch.j2" %}')
    own = "{{ supervisor }}\nslurmopt_begin_attempt\necho 'of my own' > own\n"
    (folder / "supervisor.sh.j2").write_text(own)
    local("launch.template=mine.sbatch.j2")
    assert (folder / "runs/mine/1/logs/attempt-0/rank-0.log").read_text() == "mine\n"
    assert "echo 'of my own' > own" in (folder / "runs/mine/1/job.sbatch").read_text()


def test_a_retry_of_a_sweep_keeps_the_one_that_queued_scripts_name(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    supervisor_file.write(run, "first\n")
    supervisor_file.write(run, "first\n", keep=True)
    assert [path.name for path in tmp_path.iterdir()] == ["supervisor.sh"]
    supervisor_file.write(run, "second\n", keep=True)
    assert (tmp_path / supervisor_file.kept_name("first\n")).read_text() == "first\n"
    assert run.supervisor.read_text() == "second\n"
