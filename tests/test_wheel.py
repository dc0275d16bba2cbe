"""The wheel: configs, templates and all packages are in it, and it launches from another folder in an empty venv."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from json_answer import data_of

CHECKOUT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what git tracks or would track: the build leaves files in the source."""
    source = tmp_path_factory.mktemp("source")
    listed = ["git", "-C", str(CHECKOUT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (CHECKOUT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, source / name)
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(source / "dist"),
        str(source),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = (source / "dist").glob("*.whl")
    return built


def test_everything_is_in_it(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    homes = {"slurmopt": "slurmopt", "conf": "slurmopt/conf", "sbatch_templates": "slurmopt/sbatch_templates"}
    for top, home in {**homes, "hydra_plugins": "hydra_plugins"}.items():
        for path in (CHECKOUT / top).rglob("*"):
            if path.suffix in (".py", ".yaml", ".j2", ".sh", ".css", ".js") or path.parent.name == "vendored":
                assert f"{home}/{path.relative_to(CHECKOUT / top)}" in inside
    assert "slurmopt/py.typed" in inside
    pages = {Path(name).name for name in inside if ".data/data/share/man/man1/" in name}
    assert pages == {page.name for page in (CHECKOUT / "man").glob("*.1")}


def test_it_launches_from_another_folder_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", "--no-compile", str(wheel)], check=True)
    assert (tmp_path / "venv" / "share" / "man" / "man1" / "slurmopt-launch.1").is_file()
    (tmp_path / "elsewhere").mkdir()
    words = ["launch", "task.command=[echo, hello]", "launch.backend=local", "launch.json=true", "launch.name=wheel"]
    slurmopt = tmp_path / "venv" / "bin" / "slurmopt"
    done = subprocess.run([slurmopt, *words], cwd=tmp_path / "elsewhere", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = Path(data_of(done.stdout)["run"])
    assert (run / "logs" / "attempt-0" / "rank-0.log").read_text() == "hello\n"
    dry = [python, "-m", "slurmopt.launch", "+experiment=quickstart", "cluster=hyperpod_p5", "launch.dry_run=true"]
    script = subprocess.run(
        [*dry, "launch.backend=local"], cwd=tmp_path / "elsewhere", capture_output=True, text=True, check=True
    )
    assert "#SBATCH --gpus-per-node=8" in script.stdout
