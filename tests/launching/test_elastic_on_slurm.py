"""A run with `nodes=1-2` on a real Slurm: it loses a node, goes on with the other, and takes the very same steps."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from private_cluster import wait_until

from slurmopt.run_folder import events

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")
TRAINING = '''
"""Ten steps of twelve samples; the first attempt takes four of them, and then waits for its end."""
import time

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from slurmopt import Requeue, current_run, progress, stop_requested
from slurmopt.checkpoint import Checkpointer
from slurmopt.run_folder import events
from slurmopt.training import ResumableSampler


def train(config):
    torch.manual_seed(1)
    run = current_run()
    model = DistributedDataParallel(torch.nn.Linear(1, 1).double())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    sampler = ResumableSampler(50, batch_size=4, global_batch=12, seed=2)
    loader = DataLoader(range(50), batch_sampler=sampler)
    state = {"model": model, "optimizer": optimizer, "sampler": sampler}
    with Checkpointer(config.checkpoint, run) as checkpointer:
        step, seen = checkpointer.restore(state), []
        while step < 10:
            for micro in sampler.accumulate(loader, model):
                x = micro.batch.double().unsqueeze(1)
                ((model(x) - 3 * x).square().mean() * micro.weight).backward()
                seen += micro.batch.tolist() if micro.samples else []
                if not micro.last:
                    continue
                optimizer.step()
                optimizer.zero_grad()
                step += 1
                progress(step, total=10)
                file = run.folder.path / f"steps-{run.rank.rank}.jsonl"
                events.append(file, "step", attempt=run.attempt, step=step, seen=seen)
                seen = []
                checkpointer.save(step, state, force=step == 4)
                while step == 4 and run.attempt == 0:
                    if stop_requested():
                        raise Requeue("told to")
                    time.sleep(0.05)
                if step == 10:
                    break
    return {"micro_batches": sampler.micro_batches, "weight": model.module.weight.item()}
'''


def journal(answer: dict[str, Any], event: str) -> list[dict[str, Any]]:
    return [each for each in events.read(Path(answer["run"]) / "events.jsonl") if each["event"] == event]


def steps(answer: dict[str, Any], rank: int) -> dict[int, list[int]]:
    return {line["step"]: line["seen"] for line in events.read(Path(answer["run"]) / f"steps-{rank}.jsonl")}


def expected_steps() -> list[list[int]]:
    from slurmopt.training import ResumableSampler

    sampler = ResumableSampler(50, batch_size=12, global_batch=12, seed=2, rank=0, world_size=1)
    return [micro.batch for _ in range(2) for micro in sampler.accumulate(sampler)]


def test_a_run_goes_on_with_one_node_of_two_and_keeps_its_samples_in_order(project: Any) -> None:
    (project.path / "elastic.py").write_text(TRAINING)
    words = ("task._target_=elastic.train", "resources.nodes=1-2", "resources.partition=short", "resources.time=9m")
    answer = project.submit(*words, "checkpoint.shared.every=1000", "launch.name=elastic")
    wait_until(lambda: journal(answer, "checkpoint"), 60, "step 4 is durable", lambda: project.status(answer["run"]))
    scontrol = ["scontrol", "update", "nodename=node2"]
    project.cluster.run([*scontrol, "state=drain", "reason=test"])
    try:
        project.cluster.run(["scontrol", "requeue", answer["job_ids"][0]])
        status = project.wait_for(answer, "finished", "failed")
    finally:
        project.cluster.run([*scontrol, "state=resume"])
    assert status["state"] == "finished", status
    assert [event["nodes"] for event in journal(answer, "attempt")] == ["node[1-2]", "node1"]
    assert [(event["attempt"], event["step"]) for event in journal(answer, "restored")] == [(1, 4)]
    first, second = steps(answer, 0), steps(answer, 1)
    assert [first[number] + second.get(number, []) for number in range(1, 11)] == expected_steps()
    assert (len(first[4]), len(second[4]), len(first[5]), max(second)) == (6, 6, 2, 4)
    result = json.loads((Path(answer["run"]) / "result.json").read_text())["result"]
    assert result["micro_batches"] == 3
