"""Reading run folders into records: of runs of all kinds, and of folders that are damaged, half there, or another's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmopt.ledger import buckets
from slurmopt.ledger.ledger import Ledger
from slurmopt.report.comparison import compared
from slurmopt.report.gather import gather, gather_many
from slurmopt.report.records.thin_series import thinned
from slurmopt.report.run.build import built
from slurmopt.report.run_record import RunRecord
from slurmopt.run_folder import events, time_spent
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.process import machine, started_at
from slurmopt.run_folder.series.series import Series

T = 1_790_000_000.0
LIFE = {"starting": 4.0, "checking": 1.0, "waiting": 5.0, "first step": 10.0, "running": 60.0, "input": 20.0}


class Run:
    """A run folder as launch and job would leave it, on two nodes of two GPUs, a rank for each."""

    def __init__(self, path: Path) -> None:
        self.folder = RunFolder(path)
        self.folder.make()
        self.folder.config.write_text(
            "task:\n  per: auto\nresources:\n  nodes: 2\n  gpus_per_node: 2\n  gpu_type: h100\n"
        )
        self.note(T, "created", name="mine", id="one")
        self.note(T, "submitted", token="t7", backend="sbatch", job="7")

    def note(self, time: float, event: str, **fields: Any) -> None:
        with open(self.folder.events, "a") as journal:
            journal.write(json.dumps({"time": time, "event": event, **fields}) + "\n")

    def begin(self, attempt: int, start: float, **fields: Any) -> None:
        told = {"attempt": attempt, "job": "7", "nodes": "node[1-2]", "log_from": 0, "gpus": 2, "cpus": "8(x2)"}
        self.note(start, "attempt", **{**told, **fields})

    def beat(self, attempt: int, rank: int, start: float, **fields: Any) -> Heartbeat:
        """Of a rank that started 5 s after the attempt, and reported for 105 s."""
        spent = fields.pop("spent", {**LIFE, "saving": 5.0})
        told = {
            "rank": rank, "world_size": 4, "node": f"node{rank // 2 + 1}", "pid": 1, "started": start + 5,
            "time": start + 110, "phase": "ended", "step": 100, "step_time": start + 105, "first_step": 1,
            "first_step_time": start + 25, "spent": spent, "gpus": [f"GPU-{rank}"],
            "outcome": {"outcome": "finished", "time": start + 110, "exit_code": 0},
        }  # fmt: skip
        beat = Heartbeat(**{**told, **fields})
        path = self.folder.heartbeat(attempt, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(vars(beat)))
        return beat

    def end(self, attempt: int, time: float, beats: list[Heartbeat], **fields: Any) -> None:
        spent = {time_spent.FIELD: time_spent.of_heartbeats(beats)} if beats else {}
        told = {"outcome": "finished", "exit_code": 0, "cause": "finished", "next": None, "step": 100}
        self.note(time, "end", attempt=attempt, **{**told, **spent, **fields})

    def series(
        self, attempt: int, node: str, rows: list[list[float | None]], columns: list[str], **header: Any
    ) -> None:
        facts = {"gpus": [{"index": at, "name": "NVIDIA H100 80GB HBM3"} for at in range(2)]}
        told = {"slurmopt_series": 1, "node": node, "attempt": attempt, "columns": columns, "facts": facts} | header
        path = self.folder.series(attempt, node)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in [told, *rows]))


def finished_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of one attempt. There is no Slurm to ask."""
    monkeypatch.setenv("PATH", "/nonexistent")
    made = Run(tmp_path / "runs" / "mine" / "one")
    made.begin(0, T + 60)
    made.end(0, T + 175, [made.beat(0, rank, T + 60) for rank in range(4)])
    return made


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return finished_run(tmp_path, monkeypatch)


def read(run: Run) -> RunRecord:
    """The record; what holds for every one is checked, and that the brief one has the same sum."""
    record = gather(run.folder)
    (brief,), _ = gather_many([run.folder])
    for ledger in (record.ledger, brief.ledger):
        assert sum(ledger.buckets.values()) == ledger.allocated
        assert all(amount > 0 for amount in ledger.buckets.values())
    assert brief.ledger.allocated == record.ledger.allocated
    assert all(line.isprintable() for line in record.problems)
    return record


def hours(ledger: Ledger) -> dict[str, float]:
    """Bucket → GPU-seconds."""
    return {bucket: amount / 1000 for bucket, amount in ledger.in_order()}


def test_a_run_that_finished(run: Run) -> None:
    record = read(run)
    assert (record.state, record.problems, record.gpu) == ("finished", [], "h100")
    assert hours(record.ledger) == {
        buckets.COMPUTE: 240, buckets.INPUT: 80, buckets.STARTUP: 36, buckets.HEALTH: 4, buckets.RENDEZVOUS: 20,
        buckets.FIRST_STEPS: 40, buckets.WIND_DOWN: 40,
    }  # fmt: skip
    assert record.attempts[0].queued == T
    assert record.ledger.queue_seconds == 60
    assert record.ledger.notes == ()
    (brief,), _ = gather_many([run.folder])
    assert hours(brief.ledger) == hours(record.ledger)
    assert brief.heartbeats == {}


def test_a_run_that_came_back(run: Run, tmp_path: Path) -> None:
    """The first attempt was preempted, and step 80 was its newest durable one."""
    again = Run(tmp_path / "runs" / "mine" / "two")
    again.begin(0, T + 60)
    beats = [again.beat(0, rank, T + 60, outcome=None, spent=LIFE, time=T + 165) for rank in range(4)]
    for step, tier in ((40, "shared"), (80, "scratch"), (80, "shared")):
        fields = {"attempt": 0, "step": step, "tier": tier, "checkpoint": f"step-{step}", "bytes": 1000, "seconds": 0.5}
        again.note(T + 100, "checkpoint", **fields)
    again.end(0, T + 170, beats, outcome="killed", cause="preemption", next="slurm", durable=80)
    again.note(T + 171, "requeue", attempt=0, job="7")
    again.begin(1, T + 300)
    again.note(T + 310, "restored", attempt=1, step=80, tier="shared", checkpoint="step-80")
    second = {"first_step": 81, "step": 180}
    again.end(1, T + 415, [again.beat(1, rank, T + 300, **second) for rank in range(4)], step=180)
    record = read(again)
    first, last = record.ledger.attempts
    assert first[buckets.LOST] / 4000 == pytest.approx(80 * 20 / 99, abs=0.1)
    assert last[buckets.LOST] == 0
    assert first.queue_seconds == 60
    assert last.queue_seconds == 129
    facts = record.facts[0]
    assert (facts.checkpoints, facts.checkpoint_bytes, facts.checkpoint_seconds) == (2, 3000, 1.5)
    assert (record.attempts[0].durable_step, record.attempts[1].restored_step) == (80, 80)
    (brief,), _ = gather_many([again.folder])
    assert brief.ledger.attempts[0][buckets.LOST] == pytest.approx(first[buckets.LOST], abs=10)


def test_a_run_that_hung(run: Run, tmp_path: Path) -> None:
    """Its last step was 30 s before the watchdog found that it hangs, and 40 s before its end."""
    hung = Run(tmp_path / "runs" / "mine" / "hung")
    hung.begin(0, T + 60)
    spent = {**LIFE, "running": 80.0}
    beats = [
        hung.beat(0, rank, T + 60, outcome=None, spent=spent, time=T + 185, step_time=T + 160) for rank in range(4)
    ]
    hung.note(T + 190, "hang", attempt=0, rank=1, node="node1", step=100, seconds=30.0)
    hung.end(0, T + 200, beats, outcome="killed", cause="hang", next="requeue")
    record = read(hung)
    assert record.attempts[0].stalled_since == T + 160
    assert record.ledger[buckets.STALLED] == pytest.approx(4 * 40_000, abs=8)


@pytest.fixture
def live(run: Run, tmp_path: Path) -> Iterator[Run]:
    """A run of the local backend, whose runner lives."""
    made = Run(tmp_path / "runs" / "mine" / "live")
    argv = [sys.executable, "-c", "input()", str(made.folder.path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as runner:
        pid = runner.pid
        facts = {"pid": pid, "pid_started": started_at(pid), "host": socket.gethostname(), "machine": machine()}
        made.note(time.time() - 130, "submitted", token="t8", backend="local", job=f"local-{pid}", **facts)
        yield made


def test_a_run_that_runs(live: Run) -> None:
    now = time.time()
    live.begin(0, now - 120, job="local-1", nodes="node1")
    for rank in range(2):
        live.beat(
            0, rank, now - 115, world_size=2, outcome=None, phase="running", spent=LIFE, started=now - 110,
            time=now - 10, step_time=now - 11,
        )  # fmt: skip
    record = gather(live.folder)
    assert (record.state, record.attempts[0].alive) == ("running", True)
    ledger = record.ledger
    assert ledger[buckets.COMPUTE] >= 2 * 69_000  # as it goes on since the heartbeats
    assert ledger[buckets.UNKNOWN] == 0
    assert ledger.provisional
    assert ledger.attempts[0].at_risk is None  # no durable step is known
    live.note(now - 60, "checkpoint", attempt=0, step=50, tier="shared", checkpoint="step-50", bytes=10, seconds=0.1)
    at_risk = gather(live.folder).ledger.attempts[0].at_risk
    assert at_risk is not None
    assert 0 < at_risk < ledger[buckets.COMPUTE] + ledger[buckets.INPUT]


def test_a_run_that_never_started(run: Run, tmp_path: Path) -> None:
    waiting = Run(tmp_path / "runs" / "mine" / "waiting")
    record = read(waiting)
    assert (record.attempts, record.ledger.allocated, record.ledger.in_order()) == ([], 0, [])


def test_a_run_of_which_half_the_nodes_left_nothing(run: Run) -> None:
    for rank in (2, 3):
        run.folder.heartbeat(0, rank).unlink()
    record = gather(run.folder)
    node1, node2 = record.ledger.nodes["node1"], record.ledger.nodes["node2"]
    assert node1[buckets.UNKNOWN] == 0
    assert node2.buckets == {buckets.UNKNOWN: 230_000}
    assert record.ledger.notes == ("attempt 0: 2 of 4 ranks left no heartbeat: what their GPUs did is unknown",)
    (brief,), _ = gather_many([run.folder])  # the verdict had seen them
    assert brief.ledger[buckets.UNKNOWN] == 0


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_text(""),
    "torn": lambda path: path.write_text(path.read_text()[:100]),
    "binary": lambda path: path.write_bytes(os.urandom(1000)),
    "a list": lambda path: path.write_text("[1, 2]"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a FIFO": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link in a circle": lambda path: (path.unlink(), path.symlink_to(path)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_heartbeat_costs_only_its_rank(run: Run, damage: str) -> None:
    DAMAGE[damage](run.folder.heartbeat(0, 3))
    record = read(run)
    assert record.ledger[buckets.UNKNOWN] == 115_000
    assert record.ledger[buckets.COMPUTE] == 180_000
    assert "attempt 0: the heartbeats of these ranks cannot be read: 3" in record.problems[0]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_series_costs_nothing_else(run: Run, damage: str) -> None:
    run.series(0, "node1", [[T + 70, 10.0, 300.0]], ["gpu0.power"])
    run.series(0, "node2", [[T + 70, 10.0, 300.0]], ["gpu0.power"])
    DAMAGE[damage](run.folder.series(0, "node2"))
    record = read(run)
    assert record.series[0]["node1"].values["gpu0.power"] == [300.0]
    assert record.gpu == "NVIDIA H100 80GB HBM3"
    assert record.ledger[buckets.COMPUTE] == 240_000


@pytest.mark.parametrize("damage", [*DAMAGE, "missing"])
def test_a_damaged_config_is_a_note_that_says_why(run: Run, damage: str) -> None:
    run.folder.config.write_text("x" + "y: [" * 100)  # so that a part of it is no YAML either
    if damage == "missing":
        run.folder.config.unlink()
    else:
        DAMAGE[damage](run.folder.config)
    report = built(gather(run.folder))
    (note,) = [note for note in report.notes if "config.yaml" in note]
    reason = note.partition("its config.yaml cannot be read, so what it asked for is not known: ")[2]
    assert reason
    assert reason.isprintable()
    assert report.device_seconds == 460.0
    if damage == "missing":
        assert reason == "no such file or directory"
    (brief,), _ = gather_many([run.folder])
    assert brief.problems == [note], "a report on many runs says it too"


def test_a_config_that_cannot_be_read_differs_in_nothing(run: Run, tmp_path: Path) -> None:
    other = Run(tmp_path / "runs" / "mine" / "two")
    other.folder.config.unlink()
    comparison = compared([(gather(run.folder), None), (gather(other.folder), None)])
    assert comparison.config == {}
    assert [note for note in comparison.notes if "mine/two: its config.yaml cannot be read" in note]


def test_a_series_of_a_newer_format(run: Run) -> None:
    run.series(0, "node1", [], ["gpu0.power"], slurmopt_series=99)
    record = read(run)
    assert len(record.problems) == 1
    assert "the series of node1 cannot be read" in record.problems[0]
    assert "update slurmopt" in record.problems[0]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_journal(run: Run, damage: str) -> None:
    DAMAGE[damage](run.folder.events)
    record = read(run)
    assert record.ledger.allocated in (0, 460_000)


def test_fields_of_wrong_types_count_as_missing(run: Run) -> None:
    odd = {
        "node": ["x"], "started": "soon", "time": 1e300, "phase": {}, "step": "many",
        "spent": {"running": "60", "\x1b": -1}, "counted": [], "gpus": {"a": 1}, "outcome": "good",
        "world_size": "four", "first_step_time": float("1e308"),
    }  # fmt: skip
    beat = json.loads(run.folder.heartbeat(0, 3).read_text())
    run.folder.heartbeat(0, 3).write_text(json.dumps(beat | odd))
    run.note(T + 400, "attempt", attempt="first", job=[], nodes={}, gpus="lots", cpus=-1)
    run.note(T + 401, "attempt", attempt=1, job=7, nodes="node[1", gpus=10**12, cpus="8(x")
    run.note(T + 402, "hang", attempt=1, seconds="long")
    run.note(T + 403, "end", attempt=1, cause=3, time_spent={"ranks": -1, "spent": [], "started": "x"}, durable="no")
    run.note(T + 404, "end", attempt=2, cause="finished", time_spent={"ranks": 10**9})
    record = read(run)
    assert record.ledger.attempts[0].allocated == 460_000
    assert "attempt 2: nothing tells when it began" in " ".join(record.problems)


def test_clocks_that_jump_change_no_sum(run: Run) -> None:
    for rank, jump in ((0, -86_400.0), (1, 3600.0), (2, 1e9)):
        run.beat(0, rank, T + 60, time=T + 170 + jump)
    record = read(run)
    assert record.ledger.allocated == 460_000
    assert record.ledger[buckets.COMPUTE] == 240_000


def test_ranks_that_share_gpus(run: Run) -> None:
    """Three ranks of node1 on its first GPU, whose other GPU nobody uses."""
    for rank in range(4):
        run.folder.heartbeat(0, rank).unlink()
    for rank in range(3):
        run.beat(0, rank, T + 60, node="node1", world_size=3, gpus=["GPU-0"])
    record = gather(run.folder)
    assert record.ledger.nodes["node1"][buckets.UNUSED] == 115_000
    assert [round(rank.gpus, 3) for rank in record.attempts[0].ranks] == [0.333] * 3


def test_a_command_that_starts_its_own_ranks_uses_all_nodes(run: Run) -> None:
    for rank in range(4):
        run.folder.heartbeat(0, rank).unlink()
    run.beat(0, 0, T + 60, world_size=1, gpus=["0", "1"])
    record = gather(run.folder)
    assert record.ledger[buckets.UNUSED] == 0
    assert record.ledger[buckets.COMPUTE] == 240_000


def test_nodes_of_different_sizes(run: Run) -> None:
    """What the samplers see counts where the first node shows that they see only the job's GPUs."""
    run.series(0, "node1", [], ["gpu0.power"])
    four = {"facts": {"gpus": [{"index": at} for at in range(4)]}}
    run.series(0, "node2.cluster.example", [], ["gpu0.power"], **four)
    assert gather(run.folder).attempts[0].gpus == {"node1": 2.0, "node2": 4.0}
    run.series(0, "node1", [], ["gpu0.power"], **four)
    assert gather(run.folder).attempts[0].gpus == {"node1": 2.0, "node2": 2.0}


def test_a_run_without_gpus_is_counted_in_cpus(run: Run, tmp_path: Path) -> None:
    plain = Run(tmp_path / "runs" / "mine" / "cpus")
    plain.folder.config.write_text("resources:\n  nodes: 2\n  gpus_per_node: 0\n")
    plain.begin(0, T + 60, gpus=None, cpus="8,4")
    plain.end(0, T + 175, [plain.beat(0, rank, T + 60, gpus=[]) for rank in range(4)])
    record = read(plain)
    assert record.attempts[0].gpus == {"node1": 8.0, "node2": 4.0}
    assert (record.ledger.unit, record.ledger.allocated) == ("CPU", 12 * 115_000)


def test_heartbeats_of_an_earlier_version(run: Run) -> None:
    """They have no `spent`, only the times at which phases began."""
    phases = {"starting": T + 65, "checking": T + 66, "waiting": T + 70, "running": T + 80, "saving": T + 165}
    for rank in range(4):
        run.beat(0, rank, T + 60, spent={}, phases=phases, gpus=[])
    record = gather(run.folder)
    assert hours(record.ledger)[buckets.COMPUTE] == 4 * 80
    assert hours(record.ledger)[buckets.FIRST_STEPS] == 4 * 5


def test_samples_of_the_series_tell_when_a_step_was_done(run: Run, tmp_path: Path) -> None:
    """Fifty steps in 10 s, then fifty in 70 s; the next attempt continues after the first fifty."""
    slow = Run(tmp_path / "runs" / "mine" / "slow")
    slow.begin(0, T + 60)
    spent = {"starting": 20.0, "running": 80.0}
    beats = [slow.beat(0, rank, T + 60, outcome=None, spent=spent, time=T + 165) for rank in range(4)]
    columns = ["rank0.step", "rank0.starting.share", "rank0.running.share"]
    slow.series(0, "node1", [[T + 95, 30.0, 50.0, 2 / 3, 1 / 3], [T + 165, 70.0, 100.0, 0.0, 1.0]], columns)
    slow.end(0, T + 166, beats, cause="node failure", outcome="killed", next="requeue", durable=50)
    slow.begin(1, T + 300)
    slow.note(T + 310, "restored", attempt=1, step=50, tier="shared", checkpoint="step-50")
    slow.end(1, T + 415, [slow.beat(1, rank, T + 300, first_step=51, step=150) for rank in range(4)])
    record = read(slow)
    assert record.ledger.attempts[0].ranks[0][buckets.LOST] == pytest.approx(70_000, abs=50)


def test_another_users_run_is_only_read(run: Run) -> None:
    """Nothing in the folder changes."""

    def seen() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in run.folder.path.rglob("*")}

    before = seen()
    if os.getuid() == 0:
        for path in [run.folder.path, *run.folder.path.rglob("*")]:
            os.chown(path, 12345, 12345)
    record = read(run)
    assert record.ledger.allocated == 460_000
    assert seen() == before


def test_many_runs_one_of_which_is_unreadable(run: Run, tmp_path: Path) -> None:
    others = []
    for name in ("a", "b"):
        other = Run(tmp_path / "runs" / "mine" / name)
        other.begin(0, T + 60)
        other.end(0, T + 175, [other.beat(0, rank, T + 60) for rank in range(4)])
        others.append(other)
    others[0].folder.events.unlink()
    others[0].folder.events.mkdir()
    records, _ = gather_many([run.folder, *(other.folder for other in others)])
    assert [record.ledger.allocated for record in records] == [460_000, 0, 460_000]
    assert "journal cannot be read" in records[1].problems[0]


def test_rows_are_merged_by_their_exact_means() -> None:
    times = [float(at) for at in range(10, 1010, 10)]
    values: dict[str, list[float | None]] = {
        "gpu0.power": [float(at % 7) for at in range(100)],
        "gpu0.sm": [None if at % 3 else float(at) for at in range(100)],
        "node.memory_peak": [float(at % 50) for at in range(100)],
        "rank0.step": [float(at) for at in range(100)],
    }
    series = Series("node1", 0, times, [10.0] * 99 + [20.0], values)
    thin = thinned(series, 7)
    assert 6 <= len(thin.times) <= 8
    assert (thin.times[-1], sum(thin.seconds)) == (1000.0, 1010.0)
    for column in ("gpu0.power", "gpu0.sm"):
        assert len(thin.values[column]) == len(thin.times)
    assert thin.mean("gpu0.power") == pytest.approx(series.mean("gpu0.power"))
    assert max(thin.values["node.memory_peak"], key=lambda value: value or 0) == 49
    assert thin.values["rank0.step"][-1] == 99
    assert thinned(series, 100) is series


def test_of_many_ranks_some_heartbeats_stand_for_all(run: Run, tmp_path: Path) -> None:
    """In a report on many runs: of an attempt that has no verdict, as while it runs or after its node died."""
    big = Run(tmp_path / "runs" / "mine" / "big")
    big.begin(0, T + 60, nodes="node[1-50]")
    for rank in range(100):
        big.beat(0, rank, T + 60, world_size=100)
    (brief,), _ = gather_many([big.folder])
    assert brief.ledger.allocated == 100 * 110_000
    assert brief.ledger[buckets.COMPUTE] == 100 * 60_000
    assert brief.ledger.notes == ("attempt 0: it left no word of its end: it counts until its newest heartbeat",)


def test_events_of_the_attempt_come_from_the_batch_shell(run: Run) -> None:
    """The words that the reader looks for are those that supervisor.sh writes."""
    written = events.read(run.folder.events, "attempt")[0]
    script = (Path(__file__).parents[2] / "sbatch_templates" / "supervisor.sh").read_text()
    for field in ("gpus", "cpus"):
        assert field in written
        assert f'"{field}":' in script
