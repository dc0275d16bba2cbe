"""A report that takes long says so on standard error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from report.test_gather import Run, T

from slurmopt import slow_notice
from slurmopt.cli import main

COMMANDS = {
    "making the report": ("report", "mine/one"),
    "reading the runs": ("compare", "mine/one", "mine/one@0"),
    "reading what was measured": ("metrics", "mine/one"),
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nonexistent")
    made = Run(tmp_path / "runs" / "mine" / "one")
    made.begin(0, T + 60)
    made.end(0, T + 175, [made.beat(0, rank, T + 60) for rank in range(4)])
    made.folder.attempt_logs(0).mkdir(parents=True)
    made.series(0, "node1", [[T + 70, 10.0, 300.0]], ["gpu0.power"])
    return made


@pytest.mark.parametrize("what", COMMANDS)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_command_that_takes_long_says_so_beside_its_output(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: Any, what: str, options: tuple[str, ...]
) -> None:
    """Every command takes longer than no time at all."""
    assert main([*COMMANDS[what], *options]) == 0
    quick = capsys.readouterr()
    assert what not in quick.err, "it took less than two seconds"
    monkeypatch.setattr(slow_notice, "_SECONDS", 0.0)
    assert main([*COMMANDS[what], *options]) == 0
    slow = capsys.readouterr()
    assert slow.err == f"slurmopt: {what} …\n"
    if options:
        assert data_of(slow.out).keys() == data_of(quick.out).keys()


def test_rows_on_a_terminal_have_no_notice_among_them(run: Run, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(slow_notice, "_SECONDS", 0.0)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["metrics", "mine/one", "--csv"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "gpu0.power" in shown.out
