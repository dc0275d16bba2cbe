"""Lines of journals, read by json and by msgspec."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slurmopt.sweeps.status import point_events
from slurmopt.sweeps.status.point_events import Reader

FIELDS = (
    "event", "time", "job", "point", "state", "attempt", "outcome", "cause", "next", "error", "reason", "rank",
    "seconds", "pruned", "by", "metrics", "result",
)  # fmt: skip
END = {
    "time": 1795330000.25, "event": "point", "point": 7, "state": "ended", "attempt": 0, "outcome": "finished",
    "cause": "finished", "next": None, "error": None, "seconds": 10.5, "step": 100, "metrics": {"loss": 0.5},
    "result": {"loss": 0.25, "n": 3}, "pruned": False,
}  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=3,
)


def read(reader: Reader, *lines: bytes) -> list[str]:
    return [repr({name: getattr(told, name) for name in FIELDS}) for told in reader.read(lines)]


def quick_reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    """It reads by msgspec from the first line on."""
    monkeypatch.setattr(point_events, "_FEW", 0)
    return Reader(metrics=True)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@example(changes={"time": 1.0000000000000002e100})
@example(changes={"seconds": -1e101})
@given(changes=st.dictionaries(st.sampled_from([*FIELDS, "more"]), ANYTHING, max_size=3))
def test_both_ways_read_the_same_whoever_wrote_the_line(changes: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        line = json.dumps({**END, **changes}).encode()
        by_json = read(Reader(metrics=True), line)
        assert read(quick_reader(patch), line) == by_json


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{}",
        b'{"event": "point", "point": 7',
        b'{"event": "point", "point": "7", "state": "ended", "attempt": 1.0}',
        b'{"event": "point", "metrics": {"loss": NaN, "big": 123456789012345678901234567890}}',
        b'{"event": "point", "error": "\\ud800"}',
        b'{"event": "point", "error": "\xff"}',
        b"[" * 100_000,
    ],
)
def test_damaged_and_foreign_lines_are_read_as_json_reads_them(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [json.dumps(END).encode(), line, json.dumps(END).encode()]
    by_json = read(Reader(metrics=True), *lines)
    assert read(quick_reader(monkeypatch), *lines) == by_json
    assert len(by_json) >= 2


def test_a_few_lines_do_not_cost_the_import_of_msgspec(make_sweep: Any) -> None:
    import subprocess
    import sys

    made = make_sweep().submitted("0-5", "7")
    made.ended(0)
    code = "import sys; from slurmopt.cli import main; main(sys.argv[1:]); print('msgspec' in sys.modules)"
    words = [sys.executable, "-c", code, "status", str(made.folder.path)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[-1] == "False"
