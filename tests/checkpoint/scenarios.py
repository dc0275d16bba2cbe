"""Worlds of real ranks for the tests: `python scenarios.py SCENARIO FOLDER`; what comes of it lies in FOLDER.

The ranks are forked after torch is imported, which takes longer than all that they do. A rank that dies takes the
others with it at once, as srun and the local backend do.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # it comes with the first optimizer, and takes as long as torch: once here, not in each rank
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from slurmopt.checkpoint import Checkpointer, rng_state
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.worker.current_run import CurrentRun
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.training import ResumableSampler

SAMPLES, BATCH, STEPS = 205, 4, 60
OFF = {"shared": {"path": None}}
OFTEN = {"shared": {"every": 3}}


def world(size: int, folder: Path, rank_main: Callable[[CurrentRun], None]) -> bool:
    """One attempt: whether all of its ranks ended well. The first that does not takes the others with it."""
    run = RunFolder(folder)
    attempt = len(run.attempts())
    (run.logs / f"attempt-{attempt}").mkdir(parents=True)
    living = {}
    for rank in range(size):
        facts = RankFacts(rank, rank, size, size, 0, 1, "here", "127.0.0.1", 29500)
        living[_fork(CurrentRun(run, attempt, facts), rank_main)] = rank
    well = True
    while living:
        pid, status = os.wait()
        if living.pop(pid, None) is not None and status and well:
            well = False
            for other in living:
                os.kill(other, signal.SIGKILL)
    return well


def _fork(run: CurrentRun, rank_main: Callable[[CurrentRun], None]) -> int:
    if pid := os.fork():
        return pid
    status = 1
    try:
        os.setpgid(0, 0)  # so that a rank can end together with its writer, as on a node that loses power
        log = os.open(run.folder.rank_log(run.attempt, run.rank.rank), os.O_CREAT | os.O_WRONLY, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        meeting = run.folder.path / f"meeting-{run.attempt}"
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=run.rank.rank, world_size=run.rank.world_size
        )
        rank_main(run)
        dist.destroy_process_group()
        status = 0
    except Exception:  # noqa: BLE001 - the end of a process: whatever it was is told
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # never back into the parent's code


# --- a training that is killed again and again


class Net(nn.Module):
    """Registered in another order than used, over 1 MiB of gradients: DDP builds its buckets anew after the first
    backward pass. The running statistics of its batch norm differ between ranks, as each sees other samples."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(400, 1)
        self.middle = nn.Linear(400, 400)
        self.first = nn.Linear(24, 400)
        self.norm = nn.BatchNorm1d(400)
        self.more = nn.Linear(400, 400)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.dropout(self.norm(self.first(x)).relu(), 0.2, self.training)
        return self.last(self.more(self.middle(hidden).relu()).relu())


class Death:
    """What ends an attempt: SIGKILL for one rank, at one step, before, during or after its save; with its writer or
    without."""

    def __init__(self, seed: int, attempt: int, ranks: int) -> None:
        dice = random.Random(f"{seed} {attempt} {ranks}")
        self.rank, self.after_steps = dice.randrange(ranks), dice.randint(2, 11)
        self.moment, self.with_writer = dice.choice(["before", "after"]), dice.random() < 0.5
        self.delay = dice.choice([0.0, dice.uniform(0, 0.03)])

    def strike(self, rank: int, steps: int, moment: str) -> None:
        if (rank, steps, moment) == (self.rank, self.after_steps, self.moment):
            time.sleep(self.delay)
            (os.killpg if self.with_writer else os.kill)(os.getpid(), signal.SIGKILL)


def train(run: CurrentRun, config: dict[str, Any], death: Death | None) -> None:
    rank, ranks = run.rank.rank, run.rank.world_size
    data = torch.randn(SAMPLES, 24, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(2)
    net = Net()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    torch.manual_seed(100 + rank)
    random.seed(100 + rank)
    sampler = ResumableSampler(SAMPLES, batch_size=BATCH, seed=3, rank=rank, world_size=ranks)
    loader = DataLoader(TensorDataset(torch.arange(SAMPLES), data), batch_sampler=sampler)
    model(data[:2]).sum().backward()  # the discarded backward pass that the documentation asks for
    optimizer.zero_grad()
    state = {"model": model, "optimizer": optimizer, "schedule": schedule, "sampler": sampler, "rng": rng_state()}
    state["steps_of_each_epoch"] = {}
    with Checkpointer(config, run) as checkpointer:
        step = first = checkpointer.restore(state)
        while step < STEPS:
            epoch = sampler.epoch
            for indices, x in sampler.track(loader):
                loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                step += 1
                state["steps_of_each_epoch"][epoch] = state["steps_of_each_epoch"].get(epoch, 0) + 1
                _note(run, step=step, epoch=epoch, seen=indices.tolist(), loss=loss.item(), dice=random.random())
                if death:
                    death.strike(rank, step - first, "before")
                checkpointer.save(step, state)
                if death:
                    death.strike(rank, step - first, "after")
                if step == STEPS:
                    break
    state["rng"] = {"torch": torch.get_rng_state()}
    _write(run.folder.path / f"final-{rank}.json", {name: digest(value) for name, value in state.items()})


def _note(run: CurrentRun, **fields: Any) -> None:
    events.append(run.folder.path / f"steps-{run.rank.rank}.jsonl", "step", attempt=run.attempt, **fields)


def exact(folder: Path) -> None:
    """Trainings on 2 and on 4 ranks, each without an interruption and with six."""
    for ranks in (2, 4):
        plain, killed = folder / f"plain-{ranks}", folder / f"killed-{ranks}"
        assert world(ranks, plain, lambda run: train(run, OFF, None))
        for attempt in range(6):
            death = Death(seed=7, attempt=attempt, ranks=ranks)
            assert not world(ranks, killed, lambda run, death=death: train(run, OFTEN, death))
        assert world(ranks, killed, lambda run: train(run, OFTEN, None))


# --- states that are saved on some ranks and restored on others


def reshaped(folder: Path) -> None:
    """Saved on 2 and on 4 ranks, both restored on 1, 2, 3 and 8: attempts 0 and 1, and 2 to 5."""

    def restore_both(run: CurrentRun) -> None:
        for saved in ("2", "4"):
            _restore(replace(run, folder=RunFolder(folder / saved)), _replicated(run, seed=2, steps=0))

    for saved in (2, 4):
        place = RunFolder(folder / str(saved))
        place.path.mkdir()
        assert world(
            saved, folder, lambda run, place=place: _save(replace(run, folder=place), _replicated(run, seed=1))
        )
    for restored in (1, 2, 3, 8):
        assert world(restored, folder, restore_both)


def sharded(folder: Path) -> None:
    """FSDP2: saved on 2 ranks, restored on 1, 2 and 4."""
    assert world(2, folder, lambda run: _save(run, _fully_sharded(run, seed=1)))
    for restored in (1, 2, 4):
        assert world(restored, folder, lambda run: _restore(run, _fully_sharded(run, seed=2, steps=0)))


def _replicated(run: CurrentRun, seed: int, steps: int = 2) -> dict[str, Any]:
    """`large` is large enough to be divided among the ranks."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(15, 31), nn.BatchNorm1d(31), nn.Linear(31, 3))
    net.register_buffer("table", torch.arange(7, dtype=torch.int32) * seed)
    net.register_buffer("nothing", torch.empty(0, 5))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3 * seed)
    for _ in range(steps):
        net(torch.randn(4, 15)).square().mean().backward()
        optimizer.step()
    torch.manual_seed(1000 * seed + run.rank.rank)
    model = DistributedDataParallel(net)
    large = torch.arange(5_000_000.0).view(2500, 2000) * seed
    half = torch.full((9, 9), seed / 3).half()
    return {"model": model, "optimizer": optimizer, "large": large, "half": half, "rng": rng_state()}


def _fully_sharded(run: CurrentRun, seed: int, steps: int = 2) -> dict[str, Any]:
    """Rows that do not divide evenly by 2 or 4, and fewer of them than ranks."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(10, 37), nn.ReLU(), nn.Linear(37, 3), nn.LayerNorm(3))
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        model(torch.randn(5, 10)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"model": model, "optimizer": optimizer, "note": {"seed": seed, "pair": (1, 2.5)}}


def _save(run: CurrentRun, state: dict[str, Any]) -> None:
    with Checkpointer(OFTEN, run) as checkpointer:
        checkpointer.restore(dict(state))
        checkpointer.save(5, state, force=True)
        assert checkpointer.wait()
    _write_digests(run, state)


def _restore(run: CurrentRun, state: dict[str, Any]) -> None:
    with Checkpointer(OFTEN, run) as checkpointer:
        assert checkpointer.restore(state) == 5
    _write_digests(run, state)
    if "note" in state:  # the optimizer can go on with what it got
        state["model"](torch.ones(5, 10)).square().mean().backward()
        state["optimizer"].step()


def _write_digests(run: CurrentRun, state: dict[str, Any]) -> None:
    state = {**state, "rng": {"torch": torch.get_rng_state()}}
    digests = {name: digest(value) for name, value in state.items()}
    _write(run.folder.path / f"state-{run.attempt}-{run.rank.rank}.json", digests)


def digest(value: Any) -> str:
    """Of every bit of a state; of a sharded tensor, as it is when put together."""
    whole = hashlib.sha256()
    _add(whole, value.state_dict() if hasattr(value, "state_dict") else value)
    return whole.hexdigest()


def _add(whole: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        value = value.full_tensor() if hasattr(value, "full_tensor") else value
        whole.update(f"{value.dtype} {tuple(value.shape)}".encode())
        whole.update(value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, dict):
        for key, each in value.items():
            whole.update(str(key).removeprefix("module.").encode())
            _add(whole, each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _add(whole, each)
    else:
        whole.update(repr(value).encode())


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


if __name__ == "__main__":
    torch.set_num_threads(1)
    scenarios = {"exact": exact, "reshaped": reshaped, "sharded": sharded}
    scenarios[sys.argv[1]](Path(sys.argv[2]))
