"""`scontrol reconfigure`: slurmctld breaks off some queries meanwhile, which must not look like an answer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from private_cluster import PrivateCluster

from slurmopt.errors import SlurmUnreachable
from slurmopt.slurm import client
from slurmopt.slurm.script.render import supervisor

QUERIES = 60
"""Of which about two are broken off."""
ASK = """
slurmopt_job=$1
for query in $(seq "$2"); do
  slurmopt_record 20 | grep -q "JobId=$1 .*JobState=" || echo "no answer to query $query"
done
"""


@pytest.fixture
def job(cluster: PrivateCluster) -> Iterator[str]:
    held = cluster.run(["sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true"])
    yield held.stdout.strip()
    cluster.run(["scancel", held.stdout.strip()])


@contextlib.contextmanager
def reconfigured(cluster: PrivateCluster) -> Iterator[None]:
    """slurmctld reads its configuration again and again."""
    over = threading.Event()

    def reconfigure() -> None:
        while not over.is_set():
            cluster.run(["scontrol", "reconfigure"], check=False)

    thread = threading.Thread(target=reconfigure)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_the_batch_shell_asks_again(cluster: PrivateCluster, job: str, tmp_path: Path) -> None:
    script = tmp_path / "asks.sh"
    script.write_text(supervisor() + ASK)
    with reconfigured(cluster):
        asked = cluster.run(["bash", str(script), job, str(QUERIES)])
    assert asked.stdout == ""


def test_a_command_that_got_no_answer_was_not_refused(cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    unanswered = 0
    with reconfigured(cluster):
        for _ in range(QUERIES):
            try:
                client.run(["sinfo", "--noheader"], 10)
            except SlurmUnreachable:
                unanswered += 1
    assert unanswered < QUERIES
