"""Small files of somebody else that say much: a report on them takes neither all memory nor hours."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from report.test_gather import Run, T, finished_run

from slurmopt.config.composition import stored_yaml
from slurmopt.report.gather import gather
from slurmopt.report.output.page import page_of
from slurmopt.report.records import run_attempts
from slurmopt.report.run.build import report_on
from slurmopt.run_folder.access.files import TooLarge
from slurmopt.run_folder.attempts import attempts
from slurmopt.run_folder.series import series
from slurmopt.runs.metrics.files import write_csv
from slurmopt.runs.metrics.query import load

CHECKPOINT = '{"time": 1, "event": "checkpoint", "attempt": %d, "step": 5, "tier": "shared", "seconds": 2.0}'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    made = finished_run(tmp_path, monkeypatch)
    made.series(0, "node1", [[T + 70, 10.0, 50.0]], ["gpu0.util"])
    made.folder.attempt_logs(0).mkdir(parents=True)
    return made


def header(*columns: str) -> str:
    return json.dumps({"slurmopt_series": 1, "node": "node1", "attempt": 0, "columns": columns})


def many_headers() -> str:
    """Each row would be missing in the columns of all others."""
    return "".join(f"{header(f'gpu0.c{at}')}\n[{T + 60 + at},1,1]\n" for at in range(5000))


def wide_and_long() -> str:
    wide = [f"gpu{at}.util" for at in range(5000)]
    row = json.dumps([T, 1, *[1] * 5000])
    return "\n".join([header(*wide), row, header("gpu0.util"), *(f"[{T + at},1,1]" for at in range(1, 5000))])


def empty_rows() -> str:
    return header("gpu0.util") + "\n" + ("[]," * 1_000_000 + "\n") * 12


def long_file() -> str:
    return header("gpu0.util") + "\n" + ("x" * 1023 + "\n") * (257 << 10)


@pytest.mark.parametrize("text", [many_headers, wide_and_long, empty_rows, long_file])
def test_a_series_with_more_values_than_any_is_not_read(run: Run, text: Callable[[], str]) -> None:
    path = run.folder.series(0, "node1")
    path.write_text(text())
    with pytest.raises(TooLarge):
        series.read(path)


def test_a_report_says_that_a_series_is_too_large(run: Run) -> None:
    run.folder.series(0, "node1").write_text(wide_and_long())
    why = "attempt 0: the series of node1 cannot be read"
    assert any(note.startswith(why) and "values" in note for note in report_on(run.folder).notes)


def test_columns_of_one_node_are_no_lists_of_another_ones_rows(run: Run) -> None:
    """10,000 columns times 100,000 rows would be 8 GB; nobody reads the lines behind the first ones here."""

    class Full(Exception):
        """Enough was written."""

    class Few:
        lines = 0

        def write(self, text: str) -> int:
            self.lines += 1
            if self.lines == 4:
                raise Full
            return len(text)

    wide = [f"gpu{at}.util" for at in range(10_000)]
    run.series(0, "node1", [[T, 1, *[1.0] * 10_000]], wide)
    run.series(0, "node2", [[T + at, 1, 1.0] for at in range(100_000)], ["gpu0.util"])
    before = time.process_time()
    with pytest.raises(Full):
        write_csv(load(run.folder), Few())  # type: ignore[arg-type]
    assert time.process_time() - before < 5


@pytest.mark.parametrize("nodes", ["a" * 100_000 + "[1-65536]", f"n[{'0' * 4000}1-65536]"])
def test_names_of_nodes_that_no_host_has_are_none(run: Run, nodes: str) -> None:
    told = [json.loads(line) for line in run.folder.events.read_text().splitlines()]
    changed = [{**one, "nodes": nodes} if one["event"] == "attempt" else one for one in told]
    run.folder.events.write_text("".join(json.dumps(one) + "\n" for one in changed))
    assert any("its nodes are not in the journal" in note for note in report_on(run.folder).notes)


def test_more_counts_of_cpus_than_nodes_are_none(run: Run) -> None:
    told = [json.loads(line) for line in run.folder.events.read_text().splitlines()]
    more = {"nodes": "n[1-65536]", "gpus": 0, "cpus": "1(x65536)," * 100_000 + "1"}
    changed = [{**one, **more} if one["event"] == "attempt" else one for one in told]
    run.folder.events.write_text("".join(json.dumps(one) + "\n" for one in changed))
    assert any("its CPUs are those of the config" in note for note in report_on(run.folder).notes)


def seconds_to_read(run: Run, journal: str) -> float:
    """CPU seconds, the least of three."""
    run.folder.events.write_text(journal)

    def once() -> float:
        before = time.process_time()
        attempts(run.folder)
        return time.process_time() - before

    return min(once() for _ in range(3))


def many_attempts(count: int) -> str:
    begun = '{"time": 1, "event": "attempt", "attempt": %d, "job": "8"}\n{"time": 1, "event": "retry"}\n'
    return "".join(begun % at for at in range(count)) + "".join(CHECKPOINT % at + "\n" for at in range(count))


def one_line_of_many(count: int) -> str:
    return "{" + " ".join(CHECKPOINT % at for at in range(count)) + "}\n"


@pytest.mark.parametrize("journal", [many_attempts, one_line_of_many])
def test_the_time_to_read_a_journal_grows_with_its_length_alone(run: Run, journal: Callable[[int], str]) -> None:
    """Four times as long takes four times as long, and not sixteen times."""
    few = seconds_to_read(run, journal(5_000))
    assert seconds_to_read(run, journal(20_000)) < 10 * few


def test_each_of_many_attempts_has_its_own_checkpoint(run: Run) -> None:
    run.folder.events.write_text(many_attempts(1_000))
    found = attempts(run.folder)
    assert len(found) == 1_000
    assert all(one.durable == 5 and not one.since_retry for one in found)
    run.folder.events.write_text(one_line_of_many(1_000))
    assert attempts(run.folder) == []


@pytest.mark.parametrize("time_limit", ["9" * 400 + "d", "1s" * 1_000_000, "9" * 306 + "M"])
def test_times_and_sizes_beyond_all_measure_are_none(run: Run, time_limit: str) -> None:
    resources = {"time": time_limit, "memory": time_limit}
    run.folder.config.write_text(json.dumps({"resources": resources, "monitor": {"heartbeat": time_limit}}))
    assert page_of(report_on(run.folder)).endswith("</html>")


def test_a_number_that_python_would_not_print_is_no_number_of_a_config(run: Run) -> None:
    run.folder.config.write_text(f"launch: {{name: 0x{'f' * 4000}}}\nresources: {{gpu_type: 0x{'f' * 4000}}}\n")
    assert any("config.yaml cannot be read" in note for note in report_on(run.folder).notes)
    assert stored_yaml.parse(f"a: 0x{'f' * 3000}", exact=False)["a"] > 0


def test_of_many_attempts_with_many_nodes_the_newest_count(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_attempts, "_MOST_NODES", 10_500)
    line = '{"time": %d, "event": "attempt", "attempt": %d, "job": "8", "nodes": "n[1-1000]", "gpus": 1}\n'
    run.folder.events.write_text("".join(line % (T + 60 + at, at) for at in range(100)))
    report = report_on(run.folder)
    assert [row.number for row in report.attempts] == list(range(90, 100))
    assert any(note.startswith("the first 90 attempts are left out") for note in report.notes)


def test_texts_of_megabytes_make_no_page_of_megabytes(run: Run) -> None:
    long = "x" * 3_000_000
    run.folder.config.write_text(json.dumps({"launch": {"name": long}}))
    told = [json.loads(line) for line in run.folder.events.read_text().splitlines()]
    run.folder.events.write_text("".join(json.dumps({**one, "cause": long, "error": long}) + "\n" for one in told))
    run.note(T + 150, "hang", attempt=0, node=long, phase=long, seconds=60, rank=1)
    assert len(page_of(report_on(run.folder))) < 200_000


def test_of_a_heartbeat_of_megabytes_little_is_kept(run: Run) -> None:
    beat = json.loads(run.folder.heartbeat(0, 0).read_text())
    many = {f"{'x' * 300}{at}": [] for at in range(10_000)}
    odd = {"outcome": {**beat["outcome"], **many}, "metrics": {**many, "loss": 1.0}, "gpus": ["GPU-0", *[[]] * 10_000]}
    run.folder.heartbeat(0, 0).write_text(json.dumps({**beat, **odd, "phases": {str(at): at for at in range(10_000)}}))
    record = gather(run.folder)
    assert len(str(record.heartbeats[0][0])) < 50_000
    assert record.heartbeats[0][0].metrics == {"loss": 1.0}
    assert all(one.ended for one in record.attempts[0].ranks)
