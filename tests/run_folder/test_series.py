"""The series of a node as files that anybody may have written: what `read` makes of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from slurmopt.errors import StorageError
from slurmopt.run_folder.access.files import NotRegular, TooLarge
from slurmopt.run_folder.series import series, series_file
from slurmopt.run_folder.series.series import Series

START = 1_800_000_000.0


@pytest.fixture(params=["msgspec", "json"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to read rows: the job's Python need not have msgspec."""
    if request.param == "json":
        monkeypatch.setattr(series_file, "_decode", series_file._decode_without_msgspec)
        monkeypatch.setattr(series_file, "_ERRORS", (ValueError, RecursionError, TypeError))
    else:
        assert series_file._decode is not series_file._decode_without_msgspec


def header(*columns: str, **more: Any) -> str:
    return json.dumps({"slurmopt_series": 1, "node": "n1", "attempt": 2, "columns": columns, **more})


def row(at: float, *values: Any, seconds: float = 10) -> str:
    return json.dumps([START + at, seconds, *values])


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def read(*paths: Path, **options: Any) -> Series:
    found = series.read(*paths, **options)
    assert found is not None
    return found


def ends(found: Series) -> list[float]:
    return [round(time - START, 3) for time in found.times]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "n1.jsonl"


@pytest.fixture
def recent(tmp_path: Path) -> Path:
    return tmp_path / "n1.recent.jsonl"


@pytest.mark.usefixtures("decoder")
def test_rows_under_changing_columns_are_lists_of_one_length(path: Path) -> None:
    event = '{"event": "xid", "time": 1, "gpu": 0, "xid": 79}'
    write(path, header("a"), row(10, 1), event, header("a", "b", absent={"c": "not supported"}), row(20, 0, None))
    found = read(path)
    assert (found.node, found.attempt, ends(found), found.seconds) == ("n1", 2, [10, 20], [10, 10])
    assert found.values == {"a": [1, 0], "b": [None, None]}
    assert found.absent == {"c": "not supported"}
    assert [one["xid"] for one in found.events] == [79]


def test_an_activity_that_a_rank_has_not_begun_takes_no_time(path: Path) -> None:
    first, later = ["rank0.running.share", "rank1.running.share"], ["rank0.evaluation.share", "rank1.evaluation.share"]
    write(path, header(*first), row(10, 1.0, None), header(*first, *later), row(20, 0.5, 1.0, 0.5, 0.0))
    found = read(path)
    assert found.values["rank0.evaluation.share"] == [0.0, 0.5]
    assert found.mean("rank0.evaluation.share") == 0.25
    assert found.values["rank1.evaluation.share"] == [None, 0.0], "nothing was measured of rank 1 yet"


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize(
    "line",
    [
        "[1800000020, 10",
        "[1800000020, 10, 1",
        "[1800000020, 10, 1, 2]",
        "[]",
        "[[[[",
        '{"event": 3',
        "nonsense",
        '["x", 10, 1]',
        "[null, 10, 1]",
        "[1800000020, -5, 1]",
        "[NaN, 10, 1]",
        "[" * 100_000,
    ],
)
def test_a_line_that_no_sampler_writes_is_left_out_and_no_other(path: Path, line: str) -> None:
    write(path, header("a"), row(10, 1), line, row(30, 3))
    assert read(path).values == {"a": [1, 3]}


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("value", ["true", "NaN", "Infinity", "1e999", '"9"', "[]", "{}", "9" * 400])
def test_a_value_that_is_no_finite_number_is_not_measured(path: Path, value: str) -> None:
    write(path, header("a", "b"), row(10, 1, 2), f"[{START + 20}, 10, {value}, 5]")
    assert read(path).values == {"a": [1, None], "b": [2, 5]}


@pytest.mark.usefixtures("decoder")
@pytest.mark.usefixtures("decoder")
def test_values_that_no_hardware_has_are_not_measured(path: Path) -> None:
    rows = (row(10, -1, -1.5, 1e19, 1e99), row(20, 2, -1e308, 1e18, 12), row(30, 1e-05, -0.0, 10**19, 13))
    write(path, header("node.cpu", "gpu0.margin", "net.eth0.rx", "rank0.step"), *rows)
    assert read(path).values == {
        "node.cpu": [None, 2, 1e-05],
        "gpu0.margin": [-1.5, None, 0],
        "net.eth0.rx": [None, 1e18, None],
        "rank0.step": [None, 12, 13],
    }


def test_a_torn_last_line_costs_that_line(path: Path) -> None:
    whole = "\n".join([header("a", "b"), *(row(10 * at, at, None) for at in range(1, 20))])
    for length in range(len(whole) - 60, len(whole)):
        path.write_text(whole[:length])
        assert len(read(path).times) == whole[:length].count("]") - 1


def test_columns_that_no_sampler_writes_have_no_rows(path: Path) -> None:
    many = [str(number) for number in range(30_000)]
    for columns in (["a", "a"], ["a\nb"], [""], [1], many, "ab", None, ["a" * 1000]):
        odd = json.dumps({"slurmopt_series": 1, "node": "n", "attempt": 0, "columns": columns})
        write(path, odd, row(10, 1, 2), header("x"), row(20, 7))
        assert read(path).values == {"x": [7]}, columns


def test_a_newer_format_is_told_and_an_unknown_reason_is_none(path: Path) -> None:
    write(path, header("a", absent={"b": "because", "c": "not allowed", "\n": "not allowed"}, facts=[1]))
    assert read(path).absent == {"c": "not allowed"}
    write(path, '{"slurmopt_series": 2}')
    with pytest.raises(StorageError, match="reads up to 1: update slurmopt"):
        series.read(path)


def test_what_is_no_file_is_told_and_what_is_not_there_is_none(path: Path, recent: Path) -> None:
    assert series.read(path, recent) is None
    os.mkfifo(path)
    with pytest.raises(NotRegular):
        series.read(path)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(NotRegular):
        series.read(path)


def test_more_values_than_any_sampler_writes_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_file, "MOST_VALUES", 10)
    write(path, header("a"), *(row(at, 1) for at in range(11)))
    with pytest.raises(TooLarge):
        series.read(path)


def two_files(path: Path, recent: Path) -> None:
    """Ten-minute rows until 30 minutes; rows of a minute from minute 15 to minute 32."""
    write(path, header("a"), *(row(600 * at, at, seconds=600) for at in (1, 2, 3)))
    write(recent, header("a"), *(row(60 * at, at, seconds=60) for at in range(15, 33)))


def test_merged_rows_and_then_the_newer_ones(path: Path, recent: Path) -> None:
    two_files(path, recent)
    assert ends(read(path, recent)) == [600, 1200, 1800, 1860, 1920]


def test_in_detail_all_rows_of_the_recent_file_and_no_time_twice(path: Path, recent: Path) -> None:
    two_files(path, recent)
    found = read(path, recent, detail=True)
    assert ends(found) == [600, 1200, *(60 * at for at in range(21, 33))]
    starts = [time - seconds for time, seconds in zip(found.times[1:], found.seconds[1:], strict=True)]
    assert starts == found.times[:-1], "each row begins where the one before it ended"


def test_in_detail_rows_that_the_recent_file_covers_wholly_are_not_taken_merged(path: Path, recent: Path) -> None:
    write(path, header("a"), row(25, 2, seconds=25))
    write(recent, header("a"), row(10, 1), row(20, 2), row(25, 4, seconds=5))
    assert read(path, recent, detail=True).values == {"a": [1, 2, 4]}
    assert read(path, recent).values == {"a": [2]}


def test_since_leaves_out_older_rows_and_wanted_leaves_out_columns(path: Path, recent: Path) -> None:
    write(path, header("a", "b"), *(row(600 * at, at, 0, seconds=600) for at in (1, 2, 3)))
    write(recent, header("b", "a"), *(row(60 * at, 1, at, seconds=60) for at in range(25, 33)))
    found = read(path, recent, since=START + 1200, wanted=lambda column: column == "a")
    assert found.values == {"a": [3, 31, 32]}
    assert ends(read(path, recent, since=START + 1890, detail=True)) == [1920]
    assert series.newest(path, recent) == START + 1920
    assert series.columns(path, recent) == (["a", "b"], {})


@pytest.mark.parametrize("detail", [False, True])
def test_a_clock_that_was_set_back_moves_the_rows_before(path: Path, recent: Path, detail: bool) -> None:
    """An hour is taken back after 15 minutes: what was measured before lies an hour earlier than it seemed."""
    jump = -3600
    fine = [row(60 * at + (jump if at > 15 else 0), at, seconds=60) for at in range(1, 25)]
    write(recent, header("a"), *fine)
    write(path, header("a"), row(600, 1, seconds=600), row(1200 + jump, 2, seconds=600))
    found = read(path, recent, detail=detail)
    assert ends(found)[-1] == 24 * 60 + jump
    assert found.times == sorted(set(found.times))
    assert sum(found.seconds) == 24 * 60, "no time is lost, and none counts twice"
    assert found.times[0] - found.seconds[0] == START + jump


def test_a_clock_that_was_set_forward_leaves_a_gap(path: Path) -> None:
    write(path, header("a"), row(10, 1), row(3620, 2), row(3630, 3))
    assert ends(read(path)) == [10, 3620, 3630]


def test_the_mean_is_weighted_with_time(path: Path) -> None:
    write(path, header("a", "b"), row(10, 1, None), row(40, 5, 2, seconds=30), row(50, 9, 4))
    found = read(path)
    assert found.mean("a") == pytest.approx((10 + 150 + 90) / 50)
    assert found.mean("b") == pytest.approx((60 + 40) / 40)
    assert found.mean("a", since=START + 10, until=START + 40) == 5
    assert found.mean("c") is None
    assert found.mean("a", since=START + 50) is None


def test_merge_knows_peaks_and_steps() -> None:
    def merged(column: str) -> float | None:
        return series.merge(column, [1, None, 4, 2], [1, 100, 1, 2])

    assert (merged("gpu0.memory_peak"), merged("rank0.step"), merged("gpu0.util")) == (4, 2, (1 + 4 + 4) / 4)
    assert series.merge("a", [None], [1]) is None


def test_events_of_a_storm_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_file, "_MOST_EVENTS", 3)
    write(path, header("a"), *(['{"event": "xid", "time": 1}'] * 9), row(10, 1))
    assert len(read(path).events) == 3
