"""Reading squeue's answer, and sharing it."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurmopt.errors import SlurmUnreachable
from slurmopt.slurm.cluster import cache
from slurmopt.slurm.cluster.estimate import parse_estimate
from slurmopt.slurm.queue import clock_seconds, parse_queue, queue

ROWS = (
    "15<F>PENDING<F>PartitionDown<F><F>N/A<F>0:00<F>UNLIMITED<F>0<F>n/a<F>TOK-closed<F>/home/ada/job.sbatch<F>N/A<F>1<R>\n"
    "3_2<F>RUNNING<F>None<F>gpu-[01-02]<F>1795263275<F>1-02:03:04<F>1:00:00<F>2<F>gpu-01<F>com|ment\n"
    "7<X>FAILED <F> line2 %i<F>(null)<F>1795266875<F>0<R>\n"
    "CLUSTER: other\n8<F>FAILED<F>BadConstraints<F><F>1795262975<F>0:00<F>1:00:00<F>0<F>n/a<F>(null)<F>(null)"
    "<F>1795262975<F>?<R>\n"
).replace("<F> line2", "<Y> line2")


def test_reads_the_answer_whatever_the_comments_hold() -> None:
    pending, running, refused = parse_queue(ROWS, "<F>", "<R>")
    assert (pending.job_id, pending.state, pending.reason, pending.start) == ("15", "PENDING", "PartitionDown", None)
    assert (pending.time_limit, pending.batch_host, pending.comment) == (None, "", "TOK-closed")
    assert (running.job_id, running.nodes, running.batch_host, running.reason) == ("3_2", "gpu-[01-02]", "gpu-01", "")
    assert (running.start, running.time_used, running.time_limit, running.restarts) == (1795263275.0, 93784, 3600, 2)
    assert running.comment == "com|ment\n7<X>FAILED <Y> line2 %i"
    assert (refused.job_id, refused.never_ran, refused.comment) == ("8", True, "")
    assert not pending.never_ran
    assert (pending.command, running.command) == ("/home/ada/job.sbatch", "")
    assert (pending.end, running.end) == (None, 1795266875.0)
    assert (pending.requeue, running.requeue, refused.requeue) == (True, False, None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:00", 0),
        ("3:04", 184),
        ("2:03:04", 7384),
        ("1-02:03:04", 93784),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("", None),
    ],
)
def test_clocks(text: str, seconds: int | None) -> None:
    assert clock_seconds(text) == seconds


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A squeue that answers slowly, knows one job, and counts how often it is asked."""
    path = tmp_path / "squeue"
    path.write_text(
        "#!/bin/bash\n"
        f"echo asked >> {tmp_path}/asked\n"
        "sleep 0.3\n"
        '[ -e "${0%/*}/down" ] && { echo "Unable to contact slurm controller (connect failure)" >&2; exit 1; }\n'
        'format="${@: -1}"; rest="${format#JobArrayID:0}"; field="${rest%%,*}"; record="${format##*Comment:0}"\n'
        'printf "%s$field" 1 RUNNING None n1 1795263275 0:10 1:00 0 n1; printf "hello%s\\n" "$record"\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return path


def asked(squeue: Path) -> int:
    log = squeue.with_name("asked")
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_the_second_look_is_shared_and_tells_its_age(squeue: Path) -> None:
    first = queue()
    assert first["1"].comment == "hello"
    assert first.age == 0
    second = queue()
    assert second == first
    assert second.age > 0
    assert asked(squeue) == 1


def test_a_fresh_look_asks_and_is_shared(squeue: Path) -> None:
    queue()
    assert queue(fresh=True).age == 0
    queue()
    assert asked(squeue) == 2


WATCH = "from slurmopt.slurm.queue import queue; print(sorted(queue()))"


def test_many_that_watch_ask_once(squeue: Path) -> None:
    watchers = [subprocess.Popen([sys.executable, "-c", WATCH], stdout=subprocess.PIPE, text=True) for _ in range(8)]
    assert {watcher.communicate(timeout=180)[0] for watcher in watchers} == {"['1']\n"}
    assert asked(squeue) == 1


def test_many_that_watch_a_dead_controller_ask_once(squeue: Path) -> None:
    squeue.with_name("down").touch()
    for _ in range(3):
        with pytest.raises(SlurmUnreachable, match="connect failure"):
            queue()
    assert asked(squeue) == 1


def test_an_older_answer_serves_while_another_asks(squeue: Path) -> None:
    queue()
    stored = cache.read("queue", 60)
    assert stored is not None
    cache.write("queue", stored[0], time.time() - 30)
    with cache.lock("queue", 0):
        assert queue().age >= 30
    assert asked(squeue) == 1
    assert queue().age == 0


def test_a_damaged_answer_is_asked_again(squeue: Path) -> None:
    for value in ([], {"jobs": [["1"]]}, {"jobs": 3}, {"error": "Nothing", "message": ""}, {"jobs": [[]]}):
        cache.write("queue", value, time.time())
        assert queue().age == 0
    assert asked(squeue) == 5


def test_a_file_system_without_locks_is_no_error(squeue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert list(queue()) == ["1"]


def test_estimates() -> None:
    from datetime import datetime

    now = datetime(2026, 11, 21, 12, 0, 0)
    said = "sbatch: Job 5 to start at 2026-11-21T12:39:35 using 4 processors on nodes node1 in partition main\n"
    found = parse_estimate(said, now)
    assert found.start == datetime(2026, 11, 21, 12, 39, 35)
    assert found.text == "in about 39m35s (Sat 12:39), on node1 in partition main"
    assert parse_estimate(said, datetime(2026, 11, 21, 12, 39, 34)).text == "now, on node1 in partition main"
    assert parse_estimate(said.replace("2026-11-21T12:39:35", "N/A"), now).start is None
    assert parse_estimate("", now).text == "unknown"
    newer = "sbatch: Job 5 to start at 2026-11-21T12:39:35 a using 1 processors on nodes node1 in partition main\n"
    assert parse_estimate(newer, now).start == found.start  # 26.05's own words
