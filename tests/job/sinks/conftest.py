from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from job.harness import Runner

from slurmopt.run_folder.layout import RunFolder


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    folder = RunFolder(tmp_path / "runs" / "test" / "one")
    folder.make()
    folder.events.touch()
    folder.config.write_text("lr: 0.1\n")
    code = tmp_path / "code"
    code.mkdir()
    return Runner(folder, code)


def sinks(**options: dict[str, Any]) -> tuple[str, ...]:
    """What the job script tells a rank of the sinks that are on."""
    return ("--heartbeat", "0.3", "--metrics", json.dumps(options))


def write_series(folder: RunFolder, node: str, rows: list[dict[str, float]], attempt: int = 0) -> None:
    """The recent series of a node, as its sampler writes it."""
    path = folder.recent_series(attempt, node)
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = sorted({name for row in rows for name in row})
    header = {"slurmopt_series": 1, "node": node, "attempt": attempt, "columns": columns, "absent": {}, "facts": {}}
    start = time.time() - 10 * len(rows)
    lines = [[start + 10 * index, 10, *(row.get(name) for name in columns)] for index, row in enumerate(rows)]
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *lines]))
