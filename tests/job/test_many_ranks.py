"""Many ranks on one node, with few open files allowed to each."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from job.harness import REPOSITORY, Runner

RANKS = 40
SOFT_LIMIT, HARD_LIMIT = 64, 160
PORTS = {40: "15391", 3: "15394"}
FORK = """
# Forked from one process that has imported torch, for 40 imports take minutes.
import os
import resource
import sys

import torch
import torch.distributed.checkpoint
import slurmopt.checkpoint.checkpointer
from slurmopt.job import signals
from slurmopt.job.worker import rank

ranks, folder, port = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.set_num_threads(1)
children = []
for number in range(ranks):
    child = os.fork()
    if child == 0:
        log = os.open(f"{folder}/logs/attempt-0/rank-{number}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        facts = {"RANK": number, "WORLD_SIZE": ranks, "LOCAL_RANK": number, "LOCAL_WORLD_SIZE": ranks, "NODE_RANK": 0}
        facts |= {"NNODES": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in facts.items()})
        if number < int(sys.argv[4]):  # what one node allows is not what another does
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, int(sys.argv[5])))
        signals.install()
        os._exit(rank.main([folder, "--heartbeat", "5", "--timeout", "120", "--function", "training.main"]))
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""
TRAIN = """
import os

import torch
import torch.distributed as dist

from slurmopt import current_run
from slurmopt.checkpoint import Checkpointer


def main(config):
    total = torch.ones(1000)
    dist.all_reduce(total)
    with Checkpointer({"shared": {"every": 1}}, current_run()) as checkpointer:
        assert checkpointer.restore({"total": total}) == 0
        assert checkpointer.save(1, {"total": total})
        assert checkpointer.wait()
    opened = torch.tensor([len(os.listdir("/proc/self/fd"))])
    everyone = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, opened)
    return {"total": int(total[0]), "open_files": [int(count) for count in everyone]}
"""


def _opened(runner: Runner, ranks: int, hard: int, first: int, hard_of_first: int) -> list[int]:
    """How many files each rank has open at the end, where `hard` are allowed, and on the `first` ranks fewer."""
    runner.module("training", TRAIN)
    runner.module("fork", FORK)
    runner.make_folders()
    script = f'ulimit -Sn {SOFT_LIMIT} && ulimit -Hn {hard} && exec "$0" fork.py "$@"'
    words = [str(ranks), str(runner.folder.path), PORTS[ranks], str(first), str(hard_of_first)]
    forked = subprocess.Popen(
        ["bash", "-c", script, sys.executable, *words],
        cwd=runner.code,
        env=os.environ | {"PYTHONPATH": f"{REPOSITORY}:{runner.code}", "SLURMOPT_ATTEMPT": "0"},
        start_new_session=True,
    )
    try:
        assert forked.wait(timeout=200) == 0, runner.log(0) + runner.log(1)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(forked.pid, signal.SIGKILL)
    beat = runner.beat(0)
    assert beat is not None, runner.log(0)
    assert beat.outcome is not None, runner.log(0)
    result = beat.outcome["result"]
    assert result["total"] == ranks
    return sorted(result["open_files"])


def test_40_ranks_meet_and_save_where_few_open_files_are_allowed(runner: Runner) -> None:
    opened = _opened(runner, RANKS, HARD_LIMIT, 0, 0)
    assert opened[RANKS // 2] < RANKS, "not a connection from each rank to each other one, for each of three groups"


def test_ranks_meet_where_only_one_of_them_may_have_few_files_open(runner: Runner) -> None:
    """They connect lazily all or none: else they would wait for each other for ever."""
    _opened(runner, 3, 1024, first=1, hard_of_first=139)
