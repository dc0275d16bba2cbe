"""Reports leave out columns of the series that they do not look at; nothing in them may depend on these."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from report.test_gather import Run, T

import slurmopt
from slurmopt.report.gather import gather
from slurmopt.report.records import all_series
from slurmopt.report.run.build import built
from slurmopt.run_folder.series.export_names import GPU, NODE, RANK

COLUMNS = [
    *(f"gpu{at}.{name}" for at in range(2) for name in GPU),
    *(f"node.{name}" for name in NODE),
    *(f"rank{at}.{name}" for at in range(2) for name in RANK),
]


def test_the_report_is_the_same_with_all_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    run = Run(tmp_path / "runs" / "mine" / "one")
    run.begin(0, T + 60)
    run.end(0, T + 175, [run.beat(0, rank, T + 60) for rank in range(4)])
    rows = [[T + 60 + 5 * at, 5.0, *(0.1 * at + column for column in range(len(COLUMNS)))] for at in range(1, 23)]
    run.series(0, "node1", [*rows], COLUMNS)
    few = gather(run.folder)
    assert 0 < len(few.series[0]["node1"].values) < 0.8 * len(COLUMNS)
    monkeypatch.setattr(all_series, "_NOT_SHOWN", frozenset())
    every = gather(run.folder)
    assert len(every.series[0]["node1"].values) == len(COLUMNS)
    assert asdict(built(few)) == asdict(built(every)) | {"now": few.now}


def test_no_rule_and_no_reading_names_a_column_that_is_left_out() -> None:
    package = Path(slurmopt.__file__).parent
    places = [*(package / "ledger").rglob("*.py"), *(package / "report" / "run").rglob("*.py")]
    bounds = package / "ledger" / "findings" / "plausible.py"  # of all columns, whoever looks at them
    source = "\n".join(path.read_text() for path in places if path != bounds)
    names = {name.partition(".")[2] for name in all_series._NOT_SHOWN if not name.startswith("rank.")}
    assert [name for name in sorted(names) if f'"{name}"' in source or f'.{name}"' in source] == []
