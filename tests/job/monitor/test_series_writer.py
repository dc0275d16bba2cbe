"""The files of a series as the sampler writes them: their size, their means, and what a crash or a full disk costs."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from job.harness import REPOSITORY, wait_for

from slurmopt.job.monitor import series_writer
from slurmopt.job.monitor.series_writer import SeriesWriter
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series import series
from slurmopt.run_folder.series.series import Series

START = 1_800_000_000.0
DAY = 86_400
LARGEST_OF_A_DAY = 2 << 20


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def read(run: RunFolder, **options: Any) -> Series:
    found = series.read(run.series(0, "n1"), run.recent_series(0, "n1"), **options)
    assert found is not None
    return found


def fill(writer: SeriesWriter, rows: int, columns: int = 3, first: int = 0) -> None:
    for at in range(first, first + rows):
        writer.row(START + 10 * (at + 1), 10, {f"gpu0.c{number}": at + number for number in range(columns)}, {}, {})


def test_a_day_of_eight_gpus_with_twenty_columns_takes_less_than_two_megabytes(run: RunFolder) -> None:
    """Values that need all their digits; the files are looked at every hour."""
    dice, writer, largest = random.Random(7), SeriesWriter(run, 0, "n1"), 0
    columns = [f"gpu{gpu}.column_{number}" for gpu in range(8) for number in range(20)]
    facts = {"gpus": [{"index": gpu, "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-" + "0" * 36} for gpu in range(8)]}
    for at in range(DAY // 10):
        values = {column: dice.random() * 10 ** dice.randrange(-4, 12) for column in columns}
        writer.row(START + 10 * at, 10.0, values, facts, {})
        if at % 360 == 0:
            largest = max(largest, sum(path.stat().st_size for path in run.path.rglob("*.jsonl")))
    writer.finish()
    largest = max(largest, sum(path.stat().st_size for path in run.path.rglob("*.jsonl")))
    assert largest < LARGEST_OF_A_DAY
    assert run.recent_series(0, "n1").stat().st_size < 1.1 * series_writer.LARGEST_RECENT
    assert sum(read(run).seconds) == DAY, "and no time of the day is missing"
    assert sum(read(run, detail=True).seconds) == DAY


def test_old_rows_become_hours_and_the_means_stay(run: RunFolder) -> None:
    writer, days = SeriesWriter(run, 0, "n1"), 4
    values = [float(random.Random(at).randrange(1000)) for at in range(days * DAY // 10)]
    for at, value in enumerate(values):
        measured = {"a": value, "rank0.step": at, "gpu0.memory_peak": value}
        writer.row(START + 10 * (at + 1), 10, measured, {}, {})
    writer.finish()
    found = read(run)
    assert found.seconds[0] == 3600
    assert found.seconds[-1] == 600
    assert found.seconds.count(600) >= series_writer.LEAST_MERGED
    assert found.mean("a") == pytest.approx(sum(values) / len(values), rel=1e-4)
    first = values[:360]
    assert found.values["a"][0] == pytest.approx(sum(first) / 360, rel=1e-3)
    assert found.values["gpu0.memory_peak"][0] == max(first)
    assert found.values["rank0.step"][0] == 359
    assert found.values["rank0.step"][-1] == len(values) - 1
    assert found.times[-1] == START + days * DAY
    assert len(found.times) < 300


def test_a_short_attempt_has_one_file_until_something_happens(run: RunFolder) -> None:
    writer = SeriesWriter(run, 0, "n1")
    fill(writer, 6)
    writer.finish()
    assert not run.series(0, "n1").exists(), "a sweep has thousands of such attempts"
    assert (sum(read(run).seconds), read(run).mean("gpu0.c0")) == (60, 2.5)
    writer = SeriesWriter(run, 1, "n1")
    fill(writer, 3)
    writer.event({"event": "xid", "time": START, "gpu": 0, "xid": 79})
    fill(writer, 3, first=3)
    writer.finish()
    found = series.read(run.series(1, "n1"), run.recent_series(1, "n1"))
    assert found is not None
    assert (sum(found.seconds), len(found.events)) == (60, 1)


def test_values_keep_five_digits_zeros_stay_zeros_and_steps_are_exact(run: RunFolder) -> None:
    writer = SeriesWriter(run, 0, "n1")
    values = {"a": 123_456_789_012, "b": 0.0, "c": 1 / 3, "rank0.step": 123_456_789, "d": 99_999, "e": float("nan")}
    writer.row(START, 10, values, {}, {"f": "not allowed", "a": "not supported"})
    found = read(run)
    assert {name: one[0] for name, one in found.values.items()} == {
        "a": 1.2346e11,
        "b": 0,
        "c": 0.33333,
        "rank0.step": 123_456_789,
        "d": 99_999,
        "e": None,
    }
    assert found.absent == {"f": "not allowed"}, "what has values is not absent"


def test_the_files_are_private(run: RunFolder) -> None:
    before = os.umask(0)
    try:
        fill(SeriesWriter(run, 0, "n1"), 100)
    finally:
        os.umask(before)
    for path in (run.series(0, "n1"), run.recent_series(0, "n1")):
        assert path.stat().st_mode & 0o137 == 0, path
    assert run.series(0, "n1").parent.stat().st_mode & 0o027 == 0


def test_new_columns_and_a_shortened_file_keep_the_rows_together(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series_writer, "LARGEST_RECENT", 6000)
    writer = SeriesWriter(run, 0, "n1")
    for number in range(1, 9):
        fill(writer, 25, columns=number, first=25 * (number - 1))
    assert run.recent_series(0, "n1").stat().st_size < 8000
    found = read(run, detail=True)
    assert sum(found.seconds) == 2000
    for number in range(8):
        known = [
            value for time, value in zip(found.times, found.values[f"gpu0.c{number}"], strict=True) if value is not None
        ]
        assert known == sorted(known)
        assert known[-1] == 199 + number


def test_a_storm_of_events_is_counted_and_bounded(run: RunFolder) -> None:
    writer = SeriesWriter(run, 0, "n1")
    for at in range(5000):
        writer.event({"event": "xid", "time": START + at, "gpu": 0, "xid": 31})
    writer.event({"event": "failed", "time": START, "error": "x" * 100_000})
    fill(writer, 61)
    events = read(run).events
    assert [one["event"] for one in events] == ["xid"] * series_writer.MOST_EVENTS + ["more"]
    assert events[-1]["count"] == 5001 - series_writer.MOST_EVENTS
    assert run.series(0, "n1").stat().st_size < 5000


def test_more_columns_than_any_node_has_are_left_out(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_writer, "MOST_COLUMNS", 5)
    fill(SeriesWriter(run, 0, "n1"), 1, columns=9)
    assert len(read(run).values) == 5


def test_a_column_that_no_reader_would_take_costs_no_other(run: RunFolder) -> None:
    SeriesWriter(run, 0, "n1").row(START, 10, {"rank0.a\nb.share": 1, "x" * 500: 2, "a": 3}, {}, {})
    assert read(run).values == {"a": [3]}


WRITES = """
import sys
from pathlib import Path
from slurmopt.job.monitor.series_writer import SeriesWriter
from slurmopt.job.monitor import series_writer
from slurmopt.run_folder.layout import RunFolder

series_writer.LARGEST_RECENT = 20_000
writer = SeriesWriter(RunFolder(Path(sys.argv[1])), 0, "n1")
for at in range(1_000_000):
    writer.row(1_800_000_000.0 + 10 * (at + 1), 10, {f"c{number}": at for number in range(20)}, {}, {})
    sys.stdout.write(f"{at}\\n")
    sys.stdout.flush()
"""


def test_a_kill_in_the_midst_of_a_write_costs_the_row_that_was_written_at_the_most(tmp_path: Path) -> None:
    for number in range(12):
        run, told = RunFolder(tmp_path / str(number)), tmp_path / f"{number}.out"
        with told.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", WRITES, str(run.path)], stdout=out, env={"PYTHONPATH": str(REPOSITORY)}
            )
        wait_for(lambda told=told: told.stat().st_size > 1000, "rows")
        time.sleep(number * 0.013)  # another place in the loop each time
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        written = int(told.read_text().rpartition("\n")[0].rpartition("\n")[2])
        found = read(run, detail=True)
        assert found.values["c0"][-1] in (written, written + 1)
        assert sum(found.seconds) in (10 * (written + 1), 10 * (written + 2))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.getuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]).returncode:
        pytest.skip("NOT TESTED: no small file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_rows_that_a_full_disk_did_not_take_are_written_later(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunFolder(disk / "run")
    writer = SeriesWriter(run, 0, "n1")
    fill(writer, 100)
    (disk / "ballast").write_bytes(b"")
    with (disk / "ballast").open("wb", 0) as ballast:
        try:
            while ballast.write(bytes(4096)):
                pass
        except OSError:
            pass
    fill(writer, 600, first=100)
    assert capsys.readouterr().err.count("is not written: No space left on device") in (1, 2), "once for each file"
    assert len(read(run, detail=True).times) < 700
    (disk / "ballast").unlink()
    fill(writer, 1, first=700)
    writer.finish()
    found = read(run, detail=True)
    assert found.values["gpu0.c0"] == list(range(701))
    assert sum(read(run).seconds) == 7010


def test_a_folder_that_is_away_costs_nothing_once_it_is_back(run: RunFolder) -> None:
    writer = SeriesWriter(run, 0, "n1")
    fill(writer, 50)
    run.path.rename(run.path.with_name("away"))
    run.path.write_text("a file in its place")
    fill(writer, 50, first=50)
    run.path.unlink()
    run.path.with_name("away").rename(run.path)
    fill(writer, 1, first=100)
    assert read(run, detail=True).values["gpu0.c0"] == list(range(101))


def test_a_file_of_somebody_else_is_not_followed(run: RunFolder, tmp_path: Path) -> None:
    run.series(0, "n1").parent.mkdir(parents=True)
    target = tmp_path / "target"
    target.write_text("theirs")
    run.recent_series(0, "n1").symlink_to(target)
    fill(SeriesWriter(run, 0, "n1"), 10)
    assert target.read_text() == "theirs"
