"""Where variables are found, and at which line."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmopt.errors import InputError
from slurmopt.network.lint.reading.files import in_folder, of_file
from slurmopt.network.lint.reading.mappings import of_config, of_environment


def read(folder: Path, name: str, text: str) -> list[tuple[int | None, str, str | None]]:
    path = folder / name
    path.write_text(text)
    return [(one.line, one.name, one.value) for one in of_file(path)]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("export NCCL_DEBUG=WARN", "WARN"),
        ("NCCL_DEBUG=WARN python train.py", "WARN"),
        ("OTHER=1 NCCL_DEBUG='WARN' srun python train.py", "WARN"),
        ('declare -x NCCL_DEBUG="WARN"', "WARN"),
        ("env -u X NCCL_DEBUG=WARN python train.py", "WARN"),
        ("mpirun -x NCCL_DEBUG=WARN -x PATH python train.py", "WARN"),
        ("docker run -e NCCL_DEBUG=WARN image", "WARN"),
        ("apptainer exec --env NCCL_DEBUG=WARN image.sif true", "WARN"),
        ("srun --export=ALL,NCCL_DEBUG=WARN,X=1 true", "WARN"),
        ("srun --export ALL,NCCL_DEBUG=WARN true", "WARN"),
        ("#SBATCH --export=ALL,NCCL_DEBUG=WARN", "WARN"),
        ("#SBATCH --nodes=2 --export=NCCL_DEBUG=WARN", "WARN"),
        ("export NCCL_DEBUG=${NCCL_DEBUG:-WARN}", "WARN"),
        ('export NCCL_DEBUG="${LEVEL:-WARN}"', "WARN"),
        ("bash -c 'export NCCL_DEBUG=WARN; python train.py'", "WARN"),
        ('srun bash -lc "NCCL_DEBUG=WARN python train.py $ARGS"', "WARN"),
        ("if true; then export NCCL_DEBUG=WARN; fi", "WARN"),
        ("start() { export NCCL_DEBUG=WARN; }", "WARN"),
        ("true && export NCCL_DEBUG=WARN || exit 1", "WARN"),
        ("export NCCL_DEBUG=$LEVEL", None),
        ("export NCCL_DEBUG=$(cat level)", None),
        ("NCCL_DEBUG+=,NET", None),
        ("NCCL_DEBUG=", ""),
    ],
)
def test_a_script(line: str, value: str | None, tmp_path: Path) -> None:
    assert read(tmp_path, "job.sbatch", f"#!/bin/bash\n{line}\n") == [(2, "NCCL_DEBUG", value)]


@pytest.mark.parametrize(
    "line",
    [
        "# export NCCL_DEBUG=WARN",
        "echo NCCL_DEBUG=WARN",
        'printf "NCCL_DEBUG=WARN %s" x',
        "grep NCCL_DEBUG= job.log",
        "unset NCCL_DEBUG",
        "cat <<EOF\nNCCL_DEBUG=WARN\nEOF",
        "export MY_NCCL_DEBUG=WARN",
        "export nccl_debug=1",
    ],
)
def test_what_a_script_does_not_set(line: str, tmp_path: Path) -> None:
    assert read(tmp_path, "job.sh", f"{line}\n") == []


def test_lists_and_several_lines(tmp_path: Path) -> None:
    text = """env NCCL_SOCKET_IFNAME=^docker,lo NCCL_IB_HCA==mlx5_0,mlx5_1 true
export NCCL_DEBUG=WARN FI_LOG_LEVEL=warn
bash -c '
true
export NCCL_ALGO=Ring
'
"""
    assert read(tmp_path, "job.slurm", text) == [
        (1, "NCCL_SOCKET_IFNAME", "^docker,lo"),
        (1, "NCCL_IB_HCA", "=mlx5_0,mlx5_1"),
        (2, "NCCL_DEBUG", "WARN"),
        (2, "FI_LOG_LEVEL", "warn"),
        (5, "NCCL_ALGO", "Ring"),
    ]


def test_a_hydra_config(tmp_path: Path) -> None:
    text = """# @package _global_
network:
  variables:
    NCCL_DEBUG: WARN
    NCCL_IB_HCA: ${oc.env:HCA}
    NCCL_NET: null
environment:
  setup:
    - export NCCL_SOCKET_IFNAME=eth0
    - |
      true
      export NCCL_IB_TIMEOUT=22
sweep:
  parameters:
    network.variables.NCCL_ALGO: [Ring, Tree]
"""
    assert read(tmp_path, "mine.yaml", text) == [
        (4, "NCCL_DEBUG", "WARN"),
        (5, "NCCL_IB_HCA", None),
        (9, "NCCL_SOCKET_IFNAME", "eth0"),
        (12, "NCCL_IB_TIMEOUT", "22"),
        (15, "NCCL_ALGO", "Ring"),
        (15, "NCCL_ALGO", "Tree"),
    ]


def test_compose_and_kubernetes(tmp_path: Path) -> None:
    text = """services:
  train:
    environment:
      - NCCL_DEBUG=INFO
      - NCCL_SOCKET_IFNAME=^docker,lo
---
env:
  - name: NCCL_IB_DISABLE
    value: "1"
  - {name: PATH, value: NCCL}
base: &base {NCCL_NET: IB}
more: *base
"""
    assert read(tmp_path, "compose.yml", text) == [
        (4, "NCCL_DEBUG", "INFO"),
        (5, "NCCL_SOCKET_IFNAME", "^docker,lo"),
        (9, "NCCL_IB_DISABLE", "1"),
        (11, "NCCL_NET", "IB"),
    ]


@pytest.mark.parametrize("name", ["Dockerfile", "Containerfile", "Dockerfile.gpu", "train.dockerfile"])
def test_a_dockerfile(name: str, tmp_path: Path) -> None:
    text = r"""FROM nvcr.io/nvidia/pytorch:25.01-py3
ARG NCCL_NET=IB
ENV NCCL_DEBUG=WARN \
    # of the network
    NCCL_SOCKET_IFNAME="^docker,lo" \
    FI_PROVIDER=$PROVIDER
RUN NCCL_ALGO=Ring make
env NCCL_IB_TIMEOUT 22
CMD ["python", "train.py"]
"""
    assert read(tmp_path, name, text) == [
        (3, "NCCL_DEBUG", "WARN"),
        (5, "NCCL_SOCKET_IFNAME", "^docker,lo"),
        (6, "FI_PROVIDER", None),
        (8, "NCCL_IB_TIMEOUT", "22"),
    ]


def test_a_definition_of_apptainer(tmp_path: Path) -> None:
    text = "Bootstrap: docker\nFrom: x\n%post\n  export NCCL_ALGO=Ring\n%environment\n  export NCCL_DEBUG=WARN\n"
    text += "%labels\n  NCCL_NET=IB\n"
    assert read(tmp_path, "image.def", text) == [(6, "NCCL_DEBUG", "WARN")]


@pytest.mark.parametrize("name", ["enroot.env", ".env", "nccl.conf"])
def test_lines(name: str, tmp_path: Path) -> None:
    text = "# NCCL_NET=IB\nNCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME='^docker,lo'\nexport NCCL_IB_HCA==mlx5_0\n"
    assert read(tmp_path, name, text) == [
        (2, "NCCL_DEBUG", "WARN"),
        (3, "NCCL_SOCKET_IFNAME", "^docker,lo"),
        (4, "NCCL_IB_HCA", "=mlx5_0"),
    ]


def test_the_environment_and_a_config() -> None:
    assert [one.name for one in of_environment({"NCCL_DEBUG": "WARN", "PATH": "/bin", "MY_NCCL_X": "1"})] == [
        "NCCL_DEBUG"
    ]
    found = of_config({"NCCL_IB_DISABLE": True, "NCCL_NET": None, "NCCL_IB_HCA": "${oc.env:HCA}", "OMP_NUM_THREADS": 1})
    assert [(one.name, one.value) for one in found] == [("NCCL_IB_DISABLE", "True"), ("NCCL_IB_HCA", None)]


def test_a_folder_is_searched(tmp_path: Path) -> None:
    wanted = ["Dockerfile", "a/job.sbatch", "a/b/mine.yaml"]
    for name in [*wanted, "a/train.py", ".git/hooks/x.sh", "README.md"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(str(path.relative_to(tmp_path)) for path in in_folder(tmp_path)) == sorted(wanted)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("bad.yaml", "a: [NCCL_DEBUG\n", "no valid YAML"),
        ("deep.yaml", "NCCL_DEBUG: " + "[" * 5000 + "]" * 5000, "maximum nesting depth"),
        ("image.sh", "\0NCCL_DEBUG=WARN", "no text file"),
    ],
)
def test_a_file_that_cannot_be_understood(name: str, text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, name, text)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "text", ["export NCCL_DEBUG=\\", "NCCL_DEBUG='", "NCCL_DEBUG=$((", "((NCCL_DEBUG=1", "\udc80NCCL_DEBUG=1"]
)
def test_scripts_that_bash_would_reject_are_no_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert {one.name for one in of_file(path)} <= {"NCCL_DEBUG"}
