"""`slurmopt network lint`, and the lines at launch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from json_answer import data_of

from slurmopt.cli import main

SAMPLES = Path(__file__).resolve().parent / "samples"
RIGHT, SLOW, DANGEROUS = "export NCCL_DEBUG=WARN\n", "export NCCL_DEBUG=INFO\n", "export NCCL_ALGO=Auto\n"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("NCCL_", "TORCH_", "FI_", "GLOO_"))]:
        monkeypatch.delenv(name)


def lint(*words: str) -> int:
    return main(["network", "lint", *words])


@pytest.mark.parametrize(("text", "status"), [(RIGHT, 0), (SLOW, 0), (DANGEROUS, 1)])
def test_the_status_tells_whether_something_fails(text: str, status: int) -> None:
    Path("job.sh").write_text(text)
    assert lint("job.sh") == status


def test_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.sh").write_text(SLOW + DANGEROUS)
    Path("b.sh").write_text("export NCCL_TREE_THRESHOLD=0\n")
    assert lint("a.sh", "b.sh") == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[0] for line in lines[:-1:2]] == ["a.sh:1:", "a.sh:2:", "b.sh:1:"]
    assert all(line.startswith("    mend: ") for line in lines[1:-1:2])
    assert lines[-1] == "1 fail, 2 warn: 3 variables in 2 files"


def test_nothing_found_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.sh").write_text(RIGHT)
    assert lint("job.sh") == 0
    assert capsys.readouterr().out == "nothing is wrong with 1 variable in 1 file\n"


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.sh").write_text("export NCCL_NETDEVS_POLICY=ALL\n")
    assert lint("job.sh", "--json", "--nccl", "2.27.3", "--plugin", "1.16", "--libfabric", "1.22.0amzn1.0") == 0
    told = capsys.readouterr().out
    assert json.loads(told)["command"] == "network lint"
    data = data_of(told)
    assert (data["files"], data["variables"]) == (1, 1)
    assert {key: data["versions"][key] for key in ("nccl", "plugin", "libfabric")} == {
        "nccl": "2.27.3",
        "plugin": "1.16",
        "libfabric": "1.22.0",
    }
    (finding,) = data["findings"]
    assert list(finding) == ["file", "line", "name", "value", "verdict", "what", "mend", "source"]
    assert finding["what"] == "came with NCCL 2.28; 2.27.3 ignores it"


def test_files_that_cannot_be_read_do_not_hide_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.sh").write_text(SLOW)
    Path("bad.yaml").write_text("NCCL_DEBUG: [\n")
    os.mkfifo("pipe")
    assert lint("gone.sh", "pipe", "bad.yaml", "job.sh") == 2
    told = capsys.readouterr()
    lines = told.err.splitlines()
    assert [line.split(": ")[2] for line in lines] == ["gone.sh", "pipe", "bad.yaml"]
    assert "No such file" in lines[0]
    assert "0 fail, 1 warn: 1 variable in 1 file" in told.out
    assert lint("gone.sh", "job.sh", "--json") == 2
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["errors"]) == len(answer["data"]["findings"]) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_file_without_permission_is_one_line() -> None:
    Path("secret.sh").write_text(DANGEROUS)
    Path("secret.sh").chmod(0o600)
    Path("job.sh").write_text(SLOW)
    program = (
        "import os, sys, tree_sitter, tree_sitter_bash\n"
        "import slurmopt.cli, slurmopt.commands.network.lint, slurmopt.network.lint.check\n"
        "os.setgroups([]), os.setgid(65534), os.setuid(65534)\n"
        "sys.exit(slurmopt.cli.main(sys.argv[1:]))\n"
    )
    for folder in [Path.cwd(), *Path.cwd().parents][:3]:
        folder.chmod(0o755)
    words = [sys.executable, "-c", program]
    done = subprocess.run([*words, "network", "lint", "secret.sh", "job.sh"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "slurmopt: error: secret.sh: Permission denied\n")
    assert "1 warn" in done.stdout


@pytest.mark.parametrize("option", ["--nccl", "--plugin", "--libfabric", "--torch"])
def test_a_version_that_is_none(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint(option, "latest") == 2
    assert f"{option}: 'latest' is no version" in capsys.readouterr().err


def test_without_files_the_environment_and_the_project(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNMAE", "ens5")
    Path("conf/experiment").mkdir(parents=True)
    Path("conf/experiment/mine.yaml").write_text("network:\n  variables:\n    NCCL_TREE_THRESHOLD: 0\n")
    assert lint() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("environment: warn: NCCL_SOCKET_IFNMAE=ens5")
    assert lines[2].startswith("conf/experiment/mine.yaml:3: warn: NCCL_TREE_THRESHOLD=0")


def test_a_wrong_command_is_told_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["network", "lnit"]) == 2
    assert "did you mean 'lint'?" in capsys.readouterr().err


def launched(*words: str) -> list[str]:
    return ["run", "--local", "--dry-run", *(part for word in words for part in ("--set", word)), "--", "true"]


def test_a_launch_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["+network.variables.NCCL_TREE_THRESHOLD=0", "+network.variables.NCCL_IB_DISABLE=1"]
    words += ["+environment.variables.NCCL_IB_HCA=mlx5"]
    assert main(launched(*words)) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "NCCL_" in line]
    assert len(lines) == 2
    assert lines[0].startswith("slurmopt: network.variables: NCCL_TREE_THRESHOLD=0 was removed in NCCL 2.5")
    assert lines[1].startswith("slurmopt: environment.variables: NCCL_IB_HCA=mlx5 has no effect")


def test_a_launch_that_sets_none_reads_no_table() -> None:
    program = (
        "import sys\n"
        "from slurmopt.cli import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "assert not {'slurmopt.network.lint.table', 'tree_sitter'} & set(sys.modules)\n"
    )
    words = launched("+environment.variables.OMP_NUM_THREADS=1")
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_files_without_such_variables_build_no_syntax_tree() -> None:
    Path("job.sh").write_text("export OMP_NUM_THREADS=1\nfor x in a b; do echo $x; done\n")
    program = (
        "import sys\n"
        "from slurmopt.cli import main\n"
        "main(sys.argv[1:])\n"
        "assert not {'tree_sitter', 'yaml'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, "network", "lint", "job.sh"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_files_as_people_have_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        lint(str(SAMPLES), "--nccl", "2.27.3", "--plugin", "1.16", "--libfabric", "1.22", "--torch", "2.7", "--json")
        == 1
    )
    data = data_of(capsys.readouterr().out)
    found = [(Path(one["file"]).name, one["line"], one["name"], one["verdict"]) for one in data["findings"]]
    assert data["files"] == 4
    assert found == [
        ("Dockerfile", 22, "FI_EFA_TX_IOV_LIMIT", "fail"),
        ("Dockerfile", 23, "NCCL_LAUNCH_MODE", "warn"),
        ("experiment.yaml", 20, "NCCL_DEBUG_SUBSYS", "warn"),
        ("experiment.yaml", 21, "NCCL_IB_DISABLE", "warn"),
        ("experiment.yaml", 22, "NCCL_NET_GDR_LEVEL", "warn"),
        ("experiment.yaml", 23, "NCCL_SOCKET_IFNMAE", "warn"),
        ("experiment.yaml", 28, "TORCH_DISTRIBUTED_DEBUG", "warn"),
        ("experiment.yaml", 31, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "fail"),
        ("image.def", 13, "NCCL_CROSS_NIC", "warn"),
        ("image.def", 14, "GLOO_SOCKET_IFNAME", "fail"),
        ("image.def", 15, "NCCL_P2P_DISABLE", "warn"),
        ("p5.sbatch", 10, "NCCL_DEBUG", "warn"),
        ("p5.sbatch", 33, "FI_PROVIDER", "warn"),
        ("p5.sbatch", 34, "FI_EFA_USE_DEVICE_RDMA", "fail"),
        ("p5.sbatch", 35, "FI_EFA_FORK_SAFE", "warn"),
        ("p5.sbatch", 36, "RDMAV_FORK_SAFE", "fail"),
        ("p5.sbatch", 36, "RDMAV_FORK_SAFE", "fail"),
        ("p5.sbatch", 37, "FI_LOG_LEVEL", "warn"),
        ("p5.sbatch", 38, "NCCL_SOCKET_IFNAME", "fail"),
        ("p5.sbatch", 39, "NCCL_TREE_THRESHOLD", "warn"),
        ("p5.sbatch", 40, "NCCL_ALGO", "fail"),
        ("p5.sbatch", 41, "NCCL_PROTO", "warn"),
        ("p5.sbatch", 42, "NCCL_ASYNC_ERROR_HANDLING", "warn"),
        ("p5.sbatch", 43, "NCCL_IB_GID_INDX", "warn"),
        ("p5.sbatch", 44, "NCCL_MIN_NCHANNELS", "warn"),
        ("p5.sbatch", 44, "NCCL_MIN_NCHANNELS", "warn"),
        ("p5.sbatch", 45, "NCCL_BUFFSIZE", "warn"),
        ("p5.sbatch", 46, "TORCH_NCCL_TRACE_BUFFER_SIZE", "warn"),
        ("p5.sbatch", 67, "NCCL_IB_HCA", "warn"),
        ("p5.sbatch", 68, "NCCL_MIN_CTAS", "warn"),
    ]


ESCAPES, NAMES = "\\a" * 100_000, "".join(f"export NCCL_FOO_{number}=1\n" for number in range(40_000))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Dockerfile", f'ENV NCCL_DEBUG="{ESCAPES}'),
        ("quoted.sh", f"run '{'NCCL_DEBUG=WARN; ' * 40_000}'"),
        ("nested.sh", f"{'(' * 200_000}NCCL_DEBUG=WARN{')' * 200_000}"),
        ("names.sh", NAMES),
    ],
)
def test_a_file_that_somebody_made_to_take_hours_is_read_in_seconds(name: str, text: str) -> None:
    Path(name).write_text(text)
    words = [sys.executable, "-m", "slurmopt", "network", "lint", name]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_numbers_and_names_of_some_thousand_characters(capsys: pytest.CaptureFixture[str]) -> None:
    digits = "9" * 5000
    lines = [
        f"NCCL_NET_GDR_LEVEL={digits}",
        f"NCCL_BUFFSIZE={digits}k",
        f"NCCL_NTHREADS=0x{digits}",
        f"NCCL_{digits}=1",
    ]
    Path("job.sh").write_text("".join(f"export {line}\n" for line in lines))
    lint("job.sh")
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[1] for line in said if line.startswith("job.sh:")] == ["1", "2", "3", "4"]
    assert all(len(line) <= 1000 for line in said)
