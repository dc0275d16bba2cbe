"""A report beside what sacct says, in all its forms; tests/launching has the same with a real Slurm."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from report.test_gather import Run, T

from slurmopt.commands import report as command

SACCT = """#!/bin/sh
case "$*" in *--jobs=7*) ;; *) exit 1;; esac
for word; do case $word in --delimiter=*) d=${word#--delimiter=};; esac; done
printf "7$d%s$d%s$d%s$d%s${d}COMPLETED${d}node[1-2]$d\\n" START END ELAPSED TRES
"""
LENGTH = 115


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """It had two nodes of two GPUs for 115 s."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    made = Run(tmp_path / "runs" / "mine" / "one")
    made.begin(0, T + 60)
    made.end(0, T + 60 + LENGTH, [made.beat(0, rank, T + 60) for rank in range(4)])
    return made


def sacct(folder: Path, script: str = SACCT, start: float = T + 59, seconds: int = LENGTH + 2, gpus: int = 4) -> None:
    values = {"START": start, "END": start + seconds, "ELAPSED": seconds, "TRES": f"cpu=16,gres/gpu={gpus}"}
    for name, value in values.items():
        script = script.replace(name, str(int(value) if isinstance(value, float) else value))
    path = folder / "bin" / "sacct"
    path.write_text(script)
    os.chmod(path, 0o755)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert command.main(["mine/one", *words]) == 0
    return capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(data_of(shown(capsys, "--json")))


def test_a_ledger_that_agrees_with_slurm_says_so(run: Run, tmp_path: Path, capsys: Any) -> None:
    sacct(tmp_path)
    report = as_json(capsys)
    assert report["accounting"] == {"charged": 468.0, "counted": 460.0, "difference": 8.0, "unit": "GPU"}
    assert not [note for note in report["notes"] if "Slurm" in note]
    line = "Slurm charged 0.13 GPU-hours, 1.7 % more than the ledger has"
    assert line.replace("0.13", "0.1300") in " ".join(shown(capsys).split())
    assert "1.7 % more than the ledger has" in shown(capsys, "--html", "-")


@pytest.mark.parametrize(
    ("says", "note"),
    [
        ({"seconds": 1000}, "Slurm's accounting has 1.11 GPU-hours of its jobs, the journal tells of 0.13"),
        ({"seconds": 1000}, "attempt 0: Slurm allocated 1,000 s, the journal tells of 115 s"),
        ({"gpus": 8}, "attempt 0: Slurm allocated 8 GPUs, the journal 4"),
        ({"start": T + 9000}, "Slurm charged a start of 117 s that the journal does not tell of"),
    ],
)
def test_a_difference_is_a_note(run: Run, tmp_path: Path, capsys: Any, says: dict[str, Any], note: str) -> None:
    sacct(tmp_path, **says)
    assert [one for one in as_json(capsys)["notes"] if note in one]
    assert note in " ".join(shown(capsys).split())


def test_a_start_that_accounting_lacks_does_not_take_that_of_the_next_attempt(
    run: Run, tmp_path: Path, capsys: Any
) -> None:
    begin = T + 60 + LENGTH - 5
    run.begin(1, begin)
    run.end(1, begin + 30, [run.beat(1, rank, begin) for rank in range(4)])
    sacct(tmp_path, start=begin, seconds=30)
    notes = as_json(capsys)["notes"]
    assert "Slurm's accounting does not know these attempts: 0" in notes
    assert not [note for note in notes if "attempt 1: Slurm allocated" in note]


def test_a_job_of_the_same_number_before_the_launch_is_another(run: Run, tmp_path: Path, capsys: Any) -> None:
    sacct(tmp_path, start=T - 9000)
    report = as_json(capsys)
    assert report["accounting"] is None
    assert not [note for note in report["notes"] if "Slurm" in note]


def test_without_accounting_a_note_says_that_nothing_was_checked(run: Run, tmp_path: Path, capsys: Any) -> None:
    sacct(tmp_path, "#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n")
    report = as_json(capsys)
    assert report["accounting"] is None
    (note,) = [note for note in report["notes"] if "Slurm" in note]
    assert note.startswith("the ledger was not checked against Slurm's accounting: ")
    assert report["device_seconds"] == 460.0
