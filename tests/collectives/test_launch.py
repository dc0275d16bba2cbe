"""The experiment of the benchmark is checked before it is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmopt.cli import main


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("bench.sizes=0", "bench.sizes: '0' is no size from 4 bytes"),
        ("bench.iterations=few", "bench.iterations: "),
        ("bench=3", "bench: is not a mapping"),
        ("+bench.twice=true", "bench.twice: no such key; valid: collectives, sizes"),
        ("resources.nodes=1", "resources.tasks_per_node: one rank has nobody to talk to"),
    ],
)
def test_what_is_not_valid_is_not_launched(
    override: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["launch", "+experiment=bench_collectives", "launch.backend=local", override]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*/*/events.jsonl"))
