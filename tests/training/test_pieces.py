"""EMA, noise scale, anomaly mode, fingerprints and comparisons of replicas, beside Steps on real ranks."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from checkpoint.ranks import Outcome, on_ranks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from training.test_steps import GLOBAL_BATCH, SAMPLES, WRAPS, data, net, weights

from slurmopt.checkpoint import Checkpointer
from slurmopt.errors import CheckpointError, JobError
from slurmopt.job.worker.current_run import CurrentRun
from slurmopt.run_folder.layout import RunFolder
from slurmopt.training import Ema, MicroBatch, NoiseScale, ResumableSampler, Steps

SEEDS, MEASURED, PARTS, SIZE = 200, 30, 4, 4
STEPS = 12


def averaged(model: torch.nn.Module, ema: Ema) -> str:
    with ema.averaged():
        return weights(model).numpy().tobytes().hex()


def train(run: CurrentRun, wrap: str, until: int) -> dict[str, Any]:
    """Trains with an EMA until a step, from the newest checkpoint on."""
    model = WRAPS[wrap](net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    noise = NoiseScale(every=1) if wrap == "ddp" else None
    steps = Steps(model, optimizer, noise=noise, check_replicas=3)
    ema = Ema(model, decay=0.8)
    sampler = ResumableSampler(SAMPLES, batch_size=3, global_batch=GLOBAL_BATCH, seed=3)
    state = {"model": model, "optimizer": optimizer, "steps": steps, "sampler": sampler, "ema": ema}
    state |= {} if noise is None else {"noise": noise}
    with Checkpointer({"shared": {"every": 1000}}, run) as checkpointer:
        checkpointer.restore(state)
        while steps.count < until:
            for micro in sampler.accumulate(DataLoader(data(), batch_sampler=sampler)):
                with steps.forward(micro):
                    loss = (model(micro.batch[1]) - micro.batch[1].prod(1, keepdim=True)).square().mean()
                if steps.backward(loss, micro):
                    ema.update()
                    checkpointer.save(steps.count, state, force=steps.count == until)
                    if steps.count == until:
                        break
        checkpointer.wait()
    own = weights(model).numpy().tobytes().hex()
    found = {"own": own, "ema": averaged(model, ema), "fingerprint": sampler.fingerprint}
    assert weights(model).numpy().tobytes().hex() == own
    return found | ({} if noise is None else {"noise": noise.state_dict()["measured"]})


def train_both(run: CurrentRun, until: int) -> dict[str, dict[str, Any]]:
    torch.set_num_threads(1)
    return {wrap: train(own_run(run, wrap), wrap, until) for wrap in ("ddp", "fsdp")}


def own_run(run: CurrentRun, name: str) -> CurrentRun:
    """A run of its own, on the same ranks."""
    folder = RunFolder(run.folder.path.parent / name)
    if run.rank.rank == 0 and not folder.path.exists():
        folder.make()
        folder.events.touch()
    torch.distributed.barrier()
    return replace(run, folder=folder)


def ends(folder: Any, *until: int, ranks: int = 2) -> list[dict[str, dict[str, Any]]]:
    for attempt, step in enumerate(until):
        outcomes: list[Outcome] = on_ranks(train_both, folder, step, nodes=["a"] * ranks, attempt=attempt)
        assert [outcome.error for outcome in outcomes] == [None] * ranks
    return [outcome.value for outcome in outcomes]


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    return ends(tmp_path_factory.mktemp("steady") / "run", STEPS)


def test_an_interruption_changes_no_bit_of_average_noise_and_fingerprint(
    steady: list[dict[str, dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert steady[0] == steady[1]
    assert ends(tmp_path_factory.mktemp("interrupted") / "run", 5, STEPS) == steady


def by_hand() -> tuple[list[torch.Tensor], list[list[float]]]:
    """Averages after each step of one process, and noise and |G|² of each step from per-part gradients."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    average, averages, measured = weights(model).clone(), [], []
    done = 0
    indices = ResumableSampler(SAMPLES, batch_size=GLOBAL_BATCH, global_batch=GLOBAL_BATCH, seed=3)
    while done < STEPS:
        for micro in indices.accumulate(DataLoader(data(), batch_sampler=indices)):
            x = micro.batch[1]
            cuts = [[0, 3, 6], [0, 3, 6]] if len(x) == 12 else [[0, 2, 4], [0, 2, 5]]  # of each rank's share
            shares = [x[: len(x) // 2], x[len(x) // 2 :]]
            parts = [share[a:b] for share, cut in zip(shares, cuts, strict=True) for a, b in pairwise(cut)]
            squares = []
            for part in [*parts, x]:
                optimizer.zero_grad()
                (model(part) - part.prod(1, keepdim=True)).square().mean().backward()
                squares.append(sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None))
            inverse = sum(1 / len(part) for part in parts) / len(parts)
            noise = (sum(squares[:-1]) / len(parts) - squares[-1]) / (inverse - 1 / len(x))
            measured.append([noise, squares[-1] - noise / len(x)])
            optimizer.step()
            average = 0.8 * average + 0.2 * weights(model)
            averages.append(average)
            done += 1
            if done == STEPS:
                break
    return averages, measured


def test_ranks_measure_and_average_what_one_process_computes_by_hand(steady: list[dict[str, dict[str, Any]]]) -> None:
    averages, measured = by_hand()
    for wrap in ("ddp", "fsdp"):
        found = torch.frombuffer(bytearray.fromhex(steady[0][wrap]["ema"]), dtype=torch.float64)
        assert found.tolist() == pytest.approx(averages[-1].tolist(), abs=1e-7)
    for found_pair, pair in zip(steady[0]["ddp"]["noise"], measured, strict=True):
        assert found_pair == pytest.approx(pair, rel=1e-4, abs=1e-6)


def test_the_fingerprint_is_that_of_any_number_of_ranks_and_of_no_other_data(
    steady: list[dict[str, dict[str, Any]]],
) -> None:
    def fingerprint(seed: int, steps: int) -> str:
        sampler = ResumableSampler(SAMPLES, batch_size=5, global_batch=GLOBAL_BATCH, seed=seed, rank=0, world_size=1)
        while steps:
            for micro in sampler.accumulate(DataLoader(data(), batch_sampler=sampler)):
                steps -= micro.last
                if not steps:
                    break
        return sampler.fingerprint

    assert fingerprint(3, STEPS) == steady[0]["ddp"]["fingerprint"]
    assert len({fingerprint(3, STEPS), fingerprint(4, STEPS), fingerprint(3, STEPS - 1)}) == 3


def test_the_truth_lies_in_the_interval_of_the_noise_scale_in_95_percent_of_200_seeds() -> None:
    mean, deviation = torch.full((8,), 0.3), torch.linspace(0.5, 2, 8)
    truth = float(deviation.square().sum() / mean.square().sum())
    inside = known = 0
    for seed in range(SEEDS):
        generator = torch.Generator().manual_seed(seed)
        model = torch.nn.Linear(8, 1, bias=False)
        noise = NoiseScale(every=1)
        steps = Steps(model, torch.optim.SGD(model.parameters(), lr=1e-12), noise=noise)
        for number in range(MEASURED * PARTS):
            x = mean + deviation * torch.randn(SIZE, 8, generator=generator)  # the gradients of the samples
            micro = MicroBatch(x, SIZE, 1 / PARTS, number % PARTS == PARTS - 1)
            steps.backward(model(x).mean(), micro)
        found = noise.estimate()
        known += found is not None
        inside += found is not None and found.low <= truth <= found.high
    assert known == SEEDS
    assert 181 <= inside <= 198  # of 200 draws with 95 %, outside of this one in a thousand on each side


def test_a_noise_scale_without_enough_to_tell_is_not_known() -> None:
    noise = NoiseScale()
    assert math.isnan(noise.value)
    assert noise.advice() == "the gradient noise scale is not known yet"
    noise.load_state_dict({"measured": [[1.0, (-1.0) ** number] for number in range(100)]})  # |G|² is 0
    assert noise.estimate() is None
    noise.load_state_dict({"measured": [[40.0 + number % 3, 2.0] for number in range(100)]})
    assert "the gradient noise scale is 20.5 (20.4 to 20.6)" in noise.advice()


def lose_a_bit(run: CurrentRun) -> None:
    model = DistributedDataParallel(net())
    steps = Steps(model, torch.optim.SGD(model.parameters(), lr=0.1), check_replicas=4)
    for number in range(8):
        if number == 5 and run.rank.rank == 1:
            with torch.no_grad():
                model.module[2].bias += 1e-12
        steps.backward(model(torch.ones(2, 6, dtype=torch.float64)).mean())


def test_ranks_that_drift_apart_are_found_at_the_next_comparison(tmp_path: Any) -> None:
    outcomes = on_ranks(lose_a_bit, tmp_path / "run", nodes=["a", "a"])
    for outcome in outcomes:
        said = "the weights of the ranks differ: 2.bias is the same on no more than half of them"
        assert outcome.last_line.endswith(said)


def test_anomaly_mode_names_the_operation_in_its_range_of_steps_alone() -> None:
    model = torch.nn.Linear(2, 1)
    steps = Steps(model, torch.optim.SGD(model.parameters(), lr=0.1), anomalies=range(3, 5))

    def step() -> bool:
        with steps.forward():
            loss = (model(torch.zeros(1, 2)) * 0).sqrt().sum() * 0
        return steps.backward(loss)

    for _ in range(3):
        assert step()
    assert steps.skipped == 3
    with pytest.raises(RuntimeError, match=r"SqrtBackward0.*nan"):
        step()


def test_bad_input() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(JobError, match="noise is 3; valid: NoiseScale"):
        Steps(model, optimizer, noise=3)  # type: ignore[arg-type]
    with pytest.raises(JobError, match="the noise scale is not measured in fp16"):
        Steps(model, optimizer, noise=NoiseScale(), precision="fp16")
    with pytest.raises(JobError, match="needs the sizes of micro-batches"):
        Steps(model, optimizer, noise=NoiseScale()).backward(model(torch.ones(1, 2)).mean())
    with pytest.raises(JobError, match="check_replicas is 0; valid"):
        Steps(model, optimizer, check_replicas=0)
    with pytest.raises(JobError, match="anomalies is 3; valid: a range of steps"):
        Steps(model, optimizer, anomalies=3)  # type: ignore[arg-type]
    with pytest.raises(JobError, match=r"decay is 1.0; valid: a number from 0 to below 1, such as 0.999"):
        Ema(model, decay=1.0)
    with pytest.raises(JobError, match="every is 0; valid"):
        NoiseScale(every=0)
    with pytest.raises(CheckpointError, match="of another model: bias"):
        Ema(model).load_state_dict({"weight": torch.zeros(1, 2)})
