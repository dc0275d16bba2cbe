"""All ranks leave at one step, however few of them were told; and what a callback may do."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from job.harness import Runner, alive, wait_for

from slurmopt.job.facts import process_tree

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")

LOOP = """
import json, os, random, signal, time
import torch, torch.distributed as dist
import slurmopt
from slurmopt.job.worker.coordinated_stop import CoordinatedStop

def main(config):
    rank, world = dist.get_rank(), dist.get_world_size()
    stop, slow = CoordinatedStop(rank, world, b'a key'), random.Random(rank)
    told = json.loads(os.environ["TOLD"])
    for step in range(1, 2000):
        dist.all_reduce(torch.ones(1))
        time.sleep(slow.random() / 100)
        if rank in told and step == 20 + rank:
            os.kill(os.getpid(), getattr(signal, os.environ["SIGNAL"]))
        if stop.due(step):
            print("left at", step, flush=True)
            stop.close()
            raise slurmopt.Requeue(f"left at {step}")
    raise RuntimeError("never asked to stop")
"""


@needs_torch
@pytest.mark.parametrize(("ranks", "told", "number"), [(4, [0, 1, 2, 3], "SIGUSR1"), (3, [2], "SIGTERM")])
def test_all_ranks_leave_at_the_same_step(runner: Runner, ranks: int, told: list[int], number: str) -> None:
    runner.module("train", LOOP)
    runner.environment = {"TOLD": json.dumps(told), "SIGNAL": number}
    assert runner.run(ranks, "--function", "train.main") == 75
    steps = {re.findall(r"left at (\d+)", runner.log(rank))[0] for rank in range(ranks)}
    assert len(steps) == 1, steps
    assert 20 <= int(steps.pop()) < 1000
    assert runner.last_event()["outcome"] == "requeue"


def lose_store(process: subprocess.Popen[str]) -> None:
    """Kills the process of rank 0's store."""
    (store,) = [
        pid
        for pid in process_tree.descendants(process.pid)
        if b"slurmopt.job.rendezvous.store_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(store, signal.SIGKILL)


@needs_torch
def test_ranks_whose_store_is_lost_leave_at_the_same_step_by_the_run_folder(runner: Runner) -> None:
    runner.module("train", LOOP.replace("range(1, 2000)", "range(1, 100_000)"))
    runner.environment = {"TOLD": "[]"}
    process = runner.start(3, "--heartbeat", "0.3", "--function", "train.main")
    wait_for(lambda: all((beat := runner.beat(rank)) and beat.phase == "running" for rank in range(3)), "the training")
    lose_store(process)
    for rank in range(3):
        runner.wait_for_log(rank, "rank 0's store is lost: from now on the ranks agree")
    beat = runner.beat(1)
    assert beat is not None
    os.kill(beat.pid, signal.SIGUSR1)
    assert runner.finish(process) == 75, runner.story
    steps = [re.findall(r"left at (\d+)", runner.log(rank)) for rank in range(3)]
    assert len({step for found in steps for step in found}) == 1, steps
    assert all(runner.log(rank).count("rank 0's store is lost") == 1 for rank in range(3))


@needs_torch
def test_a_rank_with_neither_store_nor_run_folder_leaves_when_it_is_told_itself(runner: Runner) -> None:
    runner.module(
        "train",
        "import os, time, torch.distributed as dist\nfrom slurmopt.job.worker.coordinated_stop import CoordinatedStop\n"
        "def main(config):\n"
        "    os.environ['SLURMOPT_RUN_FOLDER'] = '/not/mounted'\n"
        "    stop, step = CoordinatedStop(dist.get_rank(), 2, b'a key'), 0\n"
        "    while not stop.due(step):\n"
        "        step += 1\n"
        "        time.sleep(0.02)\n"
        "    print('left', flush=True)\n",
    )
    process = runner.start(2, "--heartbeat", "0.3", "--function", "train.main")
    wait_for(lambda: all((beat := runner.beat(rank)) and beat.phase == "running" for rank in range(2)), "the training")
    lose_store(process)
    for rank in range(2):
        runner.wait_for_log(rank, "this rank stops when it is asked to, without waiting for the others")
    process.send_signal(signal.SIGUSR1)
    runner.finish(process)
    assert ["left" in runner.log(rank).split() for rank in range(2)] == [True, True]


@needs_torch
def test_a_rank_that_loses_the_store_before_it_has_read_what_is_settled_there_leaves_with_the_others(
    runner: Runner,
) -> None:
    runner.module(
        "train",
        "import os, signal, time, torch.distributed as dist\n"
        "from slurmopt.job.worker import coordinated_stop as stopping\n"
        "class Late(stopping.CoordinatedStop):\n"
        "    def _where(self):\n"
        "        while True:\n"  # until rank 0 has gone with its store
        "            self._store.check(['at'])\n"
        "            time.sleep(0.05)\n"
        "def main(config):\n"
        "    rank = dist.get_rank()\n"
        "    stop, step = (Late if rank == 1 else stopping.CoordinatedStop)(rank, 2, b'a key'), 0\n"
        "    if rank == 1:\n"
        "        Late._where, late = stopping.CoordinatedStop._where, Late._where\n"
        "        stop._where = lambda: (delattr(stop, '_where'), late(stop))\n"
        "    while not stop.due(step):\n"
        "        step += 1\n"
        "        if step == 20 and rank == 0:\n"
        "            os.kill(os.getpid(), signal.SIGUSR1)\n"
        "        time.sleep(0.02)\n"
        "    print('left at', step, flush=True)\n"
        "    time.sleep(1 - rank)\n"
        "    os._exit(0)\n",
    )
    runner.run(2, "--function", "train.main")
    left = [re.findall(r"left at (\d+)", runner.log(rank)) for rank in range(2)]
    assert len(left[0]) == 1, left
    assert left[0] == left[1], runner.log(1)


@needs_torch
def test_workers_that_cannot_reach_the_run_folder_save_and_leave_together(runner: Runner) -> None:
    """Below torchrun in a container that does not show it, where slurmopt knows of one rank."""
    runner.module(
        "train",
        "import os, signal, sys, torch.distributed as dist\nfrom slurmopt import Requeue, current_run\n"
        "from slurmopt.checkpoint import Checkpointer\n"
        "dist.init_process_group('gloo')\n"
        "rank, state = dist.get_rank(), {'step': 0}\n"
        "with Checkpointer({'shared': {'path': sys.argv[1], 'every': 1000}}, current_run()) as checkpointer:\n"
        "    for step in range(1, 100_000):\n"
        "        dist.barrier()\n"
        "        if rank == 1 and step == 20:\n"
        "            os.kill(os.getpid(), signal.SIGUSR1)\n"
        "        try:\n"
        "            checkpointer.save(step, state)\n"
        "        except Requeue:\n"
        "            print(f'rank {rank} left at {step}', flush=True)\n"
        "            break\n",
    )
    saves = runner.code / "saves"
    torchrun = f"{sys.executable} -m torch.distributed.run --nproc-per-node 2 --standalone train.py"
    elsewhere = f"SLURMOPT_RUN_FOLDER=/not/mounted{runner.folder.path} exec {torchrun} {saves}"
    assert runner.run(1, "--per", "node", "--", "sh", "-c", elsewhere) == 75, runner.log(0)
    left = dict(re.findall(r"rank (\d) left at (\d+)", runner.log(0)))
    assert set(left) == {"0", "1"}
    assert len(set(left.values())) == 1, left
    assert list(saves.rglob("manifest.json"))


@needs_torch
def test_a_rank_that_has_finished_keeps_nobody_waiting(runner: Runner) -> None:
    """Rank 1 is done with its loop when rank 0 is told: rank 0 finishes its own."""
    runner.module(
        "train",
        "import os, signal, time\nimport torch.distributed as dist\n"
        "from slurmopt.job.worker.coordinated_stop import CoordinatedStop\n"
        "def main(config):\n"
        "    stop = CoordinatedStop(dist.get_rank(), 2, b'a key')\n"
        "    for step in range(1, 6):\n"
        "        if dist.get_rank() == 0:\n"
        "            time.sleep(0.3)\n"
        "        if step == 4 and dist.get_rank() == 0:\n"
        "            os.kill(os.getpid(), signal.SIGUSR1)\n"
        "            time.sleep(0.3)\n"
        "        if stop.due(step):\n"
        "            print('left at', step, flush=True)\n"
        "    stop.close()\n",
    )
    assert runner.run(2, "--function", "train.main") == 0
    assert "not all ranks answered" not in runner.log(0)


@needs_torch
def test_a_rank_is_not_waited_for_once_rank_0_takes_no_more_steps(runner: Runner) -> None:
    """Rank 1 is told only then, and would be patient for longer than this test."""
    runner.module(
        "train",
        "import os, signal, torch.distributed as dist\nfrom slurmopt.job import signals\n"
        "from slurmopt.job.worker import coordinated_stop as stopping\n"
        "def main(config):\n"
        "    stopping._PATIENCE, stop = 3600, stopping.CoordinatedStop(dist.get_rank(), 2, b'a key')\n"
        "    if dist.get_rank() == 0:\n"
        "        stop.close()\n"
        "    dist.barrier()\n"
        "    if dist.get_rank() == 1:\n"
        "        os.kill(os.getpid(), signal.SIGUSR1)\n"
        "        while stop._promise is None:\n            signals.wait(0.01)\n"
        "        print('left:', stop.due(stop._promise), flush=True)\n"
        "        stop.close()\n",
    )
    assert runner.run(2, "--function", "train.main") == 0
    assert "left: False" in runner.log(1)


@needs_torch
def test_after_an_answer_that_came_too_late_nobody_leaves(runner: Runner) -> None:
    runner.module(
        "train",
        "import os, signal, time, torch.distributed as dist\n"
        "from slurmopt.job.worker import coordinated_stop as stopping\n"
        "stopping._PATIENCE = 0.5\n"
        "class Late(stopping.CoordinatedStop):\n"
        "    def _agree(self):\n"
        "        self._wait_for_request()\n"
        "        while not self._store.check(['at']) and time.monotonic() < self.late:\n"
        "            time.sleep(0.01)\n"
        "        super()._agree()\n"
        "def main(config):\n"
        "    rank = dist.get_rank()\n"
        "    Late.late = time.monotonic() + 3\n"
        "    stop = (Late if rank == 1 else stopping.CoordinatedStop)(rank, 2, b'a key')\n"
        "    if rank == 0:\n"
        "        os.kill(os.getpid(), signal.SIGUSR1)\n"
        "    left, step = None, 0\n"
        "    while time.monotonic() < Late.late + 1 and left is None:\n"
        "        time.sleep(0.01 + rank / 100)\n"
        "        step += 1\n"
        "        left = step if stop.due(step) else None\n"
        "    print('left at', left, flush=True)\n"
        "    stop.close()\n",
    )
    assert runner.run(2, "--function", "train.main") == 0
    assert ["left at None" in runner.log(rank) for rank in range(2)] == [True, True]
    assert "not all ranks answered where to stop; going on" in runner.log(0)


def test_a_callback_saves_for_a_loop_without_steps(runner: Runner) -> None:
    runner.lone_function(
        "train",
        "import time, slurmopt\n"
        "def save():\n    print('saving', flush=True)\n    raise slurmopt.Requeue('saved by the callback')\n"
        "def main(config):\n    slurmopt.on_stop(save)\n    print('working', flush=True)\n    time.sleep(600)\n",
    )
    process = runner.start(1, "--heartbeat", "0.3", "--function", "train.main")
    runner.wait_for_log(0, "working")
    process.send_signal(signal.SIGUSR1)
    assert runner.finish(process) == 75
    assert "saving" in runner.log(0)
    assert runner.last_event()["error"] == "saved by the callback"


def test_a_callback_that_raises_is_one_line_and_the_run_goes_on(runner: Runner) -> None:
    runner.lone_function(
        "train",
        "import time, slurmopt\n"
        "def save():\n    raise ValueError('no such bucket')\n"
        "def main(config):\n    slurmopt.on_stop(save)\n    print('working', flush=True)\n"
        "    while not slurmopt.stop_requested():\n        time.sleep(0.05)\n    time.sleep(0.5)\n",
    )
    process = runner.start(1, "--heartbeat", "0.3", "--function", "train.main")
    runner.wait_for_log(0, "working")
    process.send_signal(signal.SIGUSR1)
    assert runner.finish(process) == 75
    assert "on_stop callback failed, and the run goes on: ValueError: no such bucket" in runner.log(0)
    assert "Traceback" not in runner.log(0)


def test_a_sigterm_is_heard_while_the_main_thread_is_in_c(runner: Runner) -> None:
    """Python runs its handlers only between bytecodes; the callback must not wait for the end of a long call into C."""
    runner.module(
        "train",
        "import re, slurmopt\n"
        "def save():\n    print('heard', flush=True)\n    raise slurmopt.Requeue('saved')\n"
        "def main(config):\n    slurmopt.on_stop(save)\n    print('working', flush=True)\n"
        "    import hashlib\n    hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)\n",  # minutes, without the GIL
    )
    process = runner.start(1, "--heartbeat", "0.3", "--function", "train.main")
    runner.wait_for_log(0, "working")
    process.send_signal(signal.SIGTERM)
    assert runner.finish(process) == 75
    assert "heard" in runner.log(0)


def test_forked_children_still_die_of_sigterm_and_hear_nothing(runner: Runner) -> None:
    runner.lone_function(
        "train",
        "import os, signal, time, slurmopt\n"
        "def main(config):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n        time.sleep(600)\n"
        "    print('child', child, flush=True)\n"
        "    os.kill(child, signal.SIGTERM)\n"
        "    print('ended by', os.WTERMSIG(os.waitpid(child, 0)[1]), slurmopt.stop_requested(), flush=True)\n",
    )
    assert runner.run(1, "--function", "train.main") == 0
    assert "ended by 15 False" in runner.log(0)


def test_a_rank_of_an_attempt_that_was_given_up_ends_itself(runner: Runner) -> None:
    runner.lone_function(
        "train", "import time\ndef main(config):\n    print('working', flush=True)\n    time.sleep(600)\n"
    )
    process = runner.start(1, "--heartbeat", "0.3", "--function", "train.main")
    runner.wait_for_log(0, "working")
    beat = runner.beat(0)
    assert beat is not None
    runner.folder.attempt_logs(1).mkdir()
    wait_for(lambda: not alive(beat.pid), "the end of a rank of the old attempt")
    runner.finish(process)
    assert "a newer attempt of this run has started" in str(runner.last_event()["error"])


@needs_torch
def test_so_does_one_that_waits_for_others_at_its_end(runner: Runner) -> None:
    """They were killed on another node, say: rank 0 is done, and would wait for them until the network's timeout."""
    runner.module(
        "train",
        "import os, signal\nimport torch.distributed as dist\n"
        "def main(config):\n"
        "    if dist.get_rank() == 1:\n"
        "        os.kill(os.getpid(), signal.SIGSTOP)\n",
    )
    process = runner.start(2, "--heartbeat", "0.3", "--function", "train.main")
    wait_for(lambda: (beat := runner.beat(0)) is not None and beat.outcome is not None, "the end of rank 0's function")
    waiting, stopped = runner.beat(0), runner.beat(1)
    assert waiting is not None
    assert stopped is not None
    wait_for(lambda: time.time() > waiting.time + 3, "a time that is no look at the very end of the function")
    assert alive(waiting.pid)
    runner.folder.attempt_logs(1).mkdir()
    wait_for(lambda: not alive(waiting.pid), "the end of a rank that waits for others")
    os.kill(stopped.pid, signal.SIGKILL)
    runner.finish(process)


@needs_torch
def test_a_thousand_ranks_ask_the_store_no_more_often_than_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist

    from slurmopt.job.worker import coordinated_stop

    def pauses(world: int) -> list[float]:
        stop = coordinated_stop.CoordinatedStop(0, 1, b"a key")  # a world of one asks nobody
        stop._world_size = world
        return [stop._pause() for _ in range(200)]

    assert set(pauses(64)) == {0.0}, "at each look, once a second"
    many = pauses(1024)
    assert 1024 / (sum(many) / len(many)) < 120, "questions a second"
    assert max(many) <= 13, "so late a rank hears what another one was told"
    assert len(set(many)) > 100, "not all at once"

    class Counting(dist.HashStore):  # type: ignore[misc]
        asked = 0

        def check(self, keys: list[str]) -> bool:
            self.asked += 1
            return bool(super().check(keys))

    stop = coordinated_stop.CoordinatedStop(0, 1, b"a key")
    stop._store = store = Counting()
    stop._world_size, stop._prefix = 1024, ""
    for rank in range(1024):
        store.set(f"promise/{rank}", stop._signed(f"promise/{rank}", rank))
    assert stop._where() == 1023
    assert store.asked < 3, "one question for all promises"
