"""The doctor's checks of container runtimes. The runtimes are simulated; user namespaces are the kernel's."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from private_cluster import new_folder, unprivileged_user

from slurmopt.doctor.containers import containers, pyxis

FORBID = ("unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c")
"""In a user namespace of its own, where it is nobody else's setting."""
ASK = """
import json
from slurmopt.doctor.containers import containers
print(json.dumps([result.as_dict() for result in containers(has_gpus=False)]))
"""


def runtime(folder: Path, name: str, *lines: str) -> None:
    (folder / name).write_text("\n".join(["#!/bin/sh", *lines, ""]))
    (folder / name).chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_runtimes_that_run_and_that_do_not(programs: Path) -> None:
    runtime(programs, "apptainer", "echo apptainer version 1.3.4")
    runtime(programs, "docker", "echo 'error while loading shared libraries: libx.so' >&2; exit 127")
    shown = {(each.verdict, each.text) for each in containers(has_gpus=False)}
    assert ("pass", "apptainer 1.3.4") in shown
    assert ("fail", "docker does not run: error while loading shared libraries: libx.so") in shown


def test_enroot_needs_a_tool_for_gpus(programs: Path) -> None:
    runtime(programs, "enroot", "echo 3.5.0")
    assert [each.verdict for each in containers(has_gpus=False)] == ["pass"]
    (warned,) = [each for each in containers(has_gpus=True) if each.verdict == "warn"]
    assert "nvidia-container-cli" in warned.text


@pytest.mark.parametrize(("options", "verdict"), [("--container-image=[USER@]…", "pass"), ("--cpus", "skipped")])
def test_pyxis_is_an_option_of_srun(programs: Path, options: str, verdict: str) -> None:
    runtime(programs, "srun", f"echo '{options}'")
    assert [each.verdict for each in pyxis()] == [verdict]


def test_a_kernel_that_forbids_user_namespaces(tmp_path: Path) -> None:
    if os.getuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("NOT TESTED: needs root, to become another user, and unshare")
    user = pwd.getpwnam(unprivileged_user())
    folder = new_folder()
    folder.chmod(0o755)
    runtime(folder, "apptainer", "echo apptainer version 1.3.4")
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    limited = (*FORBID, 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', "sh")
    for words in ((), limited):
        done = subprocess.run(
            [*words, sys.executable, "-c", ASK],
            env=environment, user=user.pw_uid, group=user.pw_gid, extra_groups=[], cwd="/",
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        failed = [each for each in json.loads(done.stdout) if each["verdict"] == "fail"]
        assert len(failed) == (1 if words else 0)
    assert "this user may not make user namespaces, which apptainer needs" in failed[0]["text"]
    assert "sysctl -w user.max_user_namespaces=" in failed[0]["mend"]
    shutil.rmtree(folder)
