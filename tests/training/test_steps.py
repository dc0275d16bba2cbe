"""Steps: the same weights on any number of ranks and however a step is accumulated; bad steps are skipped by all."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint.ranks import Outcome, on_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from slurmopt.checkpoint import Checkpointer
from slurmopt.errors import JobError
from slurmopt.job.worker.current_run import CurrentRun
from slurmopt.training import ResumableSampler, Steps, schedules

SAMPLES, GLOBAL_BATCH, STEPS = 57, 12, 20
"""The last global batch of an epoch has 9 samples."""


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 1)).double()


def replicated(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model)


def sharded(model: nn.Sequential) -> nn.Module:
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    return model


def plain(model: nn.Module) -> nn.Module:
    return model


def hybrid(model: nn.Sequential) -> nn.Module:
    """HSDP: sharded over pairs of ranks, and replicated over the pairs."""
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size() // 2, 2), mesh_dim_names=("replicas", "shards"))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    return model


WRAPS = {"ddp": replicated, "fsdp": sharded, "hsdp": hybrid, "plain": plain}


def weights(model: nn.Module) -> torch.Tensor:
    """All parameters in one vector."""
    whole = [value.full_tensor() if hasattr(value, "full_tensor") else value for value in model.parameters()]
    return torch.cat([value.detach().reshape(-1) for value in whole])


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(SAMPLES, 6, dtype=torch.float64, generator=generator)
    return TensorDataset(torch.arange(SAMPLES), x, torch.randint(1, 9, (SAMPLES,), generator=generator))


def train(
    wrap: str,
    batch_size: int,
    by_tokens: bool = False,
    bad: dict[int, tuple[int, float]] | None = None,
    fused: bool = False,
    **options: Any,
) -> tuple[list[float], int, int]:
    """Trains STEPS steps. `bad`: step → (rank, value) that the loss gets there. Returns weights, steps and skipped."""
    model = WRAPS[wrap](net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=fused)
    steps = Steps(model, optimizer, schedule=None if fused else lambda step: 1 / (1 + step), clip=0.5, **options)
    sampler = ResumableSampler(SAMPLES, batch_size=batch_size, global_batch=GLOBAL_BATCH, seed=3)
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    ended = 0
    while ended < STEPS:
        for micro in sampler.accumulate(DataLoader(data(), batch_sampler=sampler)):
            _, x, tokens = micro.batch
            with steps.forward(micro):
                losses = (model(x) - x.prod(1, keepdim=True)).square()[:, 0]
                loss = (losses * tokens).sum() if by_tokens else losses.mean()
            if bad and ended in bad and bad[ended][0] == rank:
                loss = loss * bad[ended][1]
            if steps.backward(loss, micro, tokens=int(tokens.sum()) if by_tokens else None):
                ended += 1
                if ended == STEPS:
                    break
    return weights(model).tolist(), steps.taken, steps.skipped


def count_all_reduces(run: CurrentRun) -> list[int]:
    """How many all-reduces of gradients each of three passes of a step has, where all is replicated."""
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicas", "shards"))
    model = fully_shard(net(), mesh=mesh)
    steps = Steps(model, torch.optim.SGD(model.parameters(), lr=0.1), accumulate=3)
    called, found = 0, []
    all_reduce = torch.distributed.all_reduce

    def counted(*words: Any, **options: Any) -> Any:
        nonlocal called
        called += 1
        return all_reduce(*words, **options)

    for _ in range(3):
        with steps.forward():
            loss = model(torch.ones(2, 6, dtype=torch.float64)).mean()
        torch.distributed.all_reduce, called = counted, 0
        steps.backward(loss)
        torch.distributed.all_reduce = all_reduce
        found.append(called)
    return found


def test_hsdp_sums_over_replicas_once_a_step(tmp_path: Path) -> None:
    for outcome in on_ranks(count_all_reduces, tmp_path / "run", nodes=["a", "a"]):
        assert outcome.error is None
        assert outcome.value[:2] == [0, 0]
        assert outcome.value[2] > 0


BAD = {3: (0, math.nan), 7: (1, math.inf), 8: (1, math.nan)}
WORLDS: dict[str, dict[str, Any]] = {
    **{
        f"{wrap} {'tokens' if by_tokens else 'samples'}": {"wrap": wrap, "by_tokens": by_tokens}
        for wrap in ("ddp", "fsdp", "hsdp")
        for by_tokens in (False, True)
    },
    **{f"{wrap} {size}": {"wrap": wrap, "batch_size": size} for wrap in ("ddp", "fsdp", "hsdp") for size in (12, 1)},
    "hsdp bad": {"wrap": "hsdp", "bad": BAD},
    "ddp bad": {"wrap": "ddp", "bad": BAD},
    "ddp bad fused": {"wrap": "ddp", "bad": BAD, "fused": True},
    "fsdp bad": {"wrap": "fsdp", "bad": BAD},
}
"""Of the global batch of 12, in batches of 12, 2 and 1, 2 ranks have 1, 3 and 6 passes, and 4 ranks 1, 2 and 3."""
Ends = dict[str, tuple[list[float], int, int]]


def train_on_rank(run: CurrentRun) -> Ends:
    torch.set_num_threads(1)
    return {name: train(**{"batch_size": 2, **words}) for name, words in WORLDS.items()}


@pytest.fixture(scope="module", params=[2, 4], ids=["2 ranks", "4 ranks"])
def ends(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Ends]:
    """How all trainings have ended, on each rank of a world."""
    folder = tmp_path_factory.mktemp("ranks") / "run"
    outcomes: list[Outcome] = on_ranks(train_on_rank, folder, nodes=["a"] * request.param)
    assert [outcome.error for outcome in outcomes] == [None] * request.param
    return [outcome.value for outcome in outcomes]


@pytest.mark.parametrize("by_tokens", [False, True])
@pytest.mark.parametrize("batch_size", [12, 5, 1])
def test_accumulation_gives_the_gradient_of_the_whole_global_batch(batch_size: int, by_tokens: bool) -> None:
    whole, _, _ = train("plain", GLOBAL_BATCH, by_tokens)
    parts, _, _ = train("plain", batch_size, by_tokens)
    assert parts == pytest.approx(whole, abs=1e-6)
    assert (parts == whole) == (batch_size == GLOBAL_BATCH)


@pytest.mark.parametrize("name", [name for name in WORLDS if "bad" not in name])
def test_ranks_give_the_gradient_of_the_whole_global_batch(ends: list[Ends], name: str) -> None:
    whole, _, _ = train("plain", GLOBAL_BATCH, WORLDS[name].get("by_tokens", False))
    assert all(each[name] == ends[0][name] for each in ends), "the ranks differ"
    assert ends[0][name][0] == pytest.approx(whole, abs=1e-6)


@pytest.mark.parametrize("name", [name for name in WORLDS if "bad" in name])
def test_a_bad_loss_on_one_rank_is_skipped_by_all(ends: list[Ends], name: str) -> None:
    assert all(each[name] == ends[0][name] for each in ends), "the ranks differ"
    assert ends[0][name][1:] == (STEPS - 3, 3)
    bad = {step: (0, math.nan) for step in BAD}
    alone, taken, skipped = train("plain", GLOBAL_BATCH, fused="fused" in name, bad=bad)
    assert (taken, skipped) == (STEPS - 3, 3)
    assert ends[0][name][0] == pytest.approx(alone, abs=1e-6), "something else than the bad steps was left out"


def train_with_checkpoints(run: CurrentRun, until: int, fused: bool) -> str:
    """Trains on from the newest checkpoint until the step `until`, which is saved. Returns the bytes of all weights."""
    torch.set_num_threads(1)
    model = DistributedDataParallel(net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=fused)
    steps = Steps(model, optimizer, schedule=schedules.cosine(STEPS, warmup=4), clip=0.5)
    sampler = ResumableSampler(SAMPLES, batch_size=4, global_batch=GLOBAL_BATCH, seed=3)
    state = {"model": model, "optimizer": optimizer, "steps": steps, "sampler": sampler}
    with Checkpointer({"shared": {"every": 1000}}, run) as checkpointer:
        checkpointer.restore(state)
        while steps.count < until:
            for micro in sampler.accumulate(DataLoader(data(), batch_sampler=sampler)):
                with steps.forward(micro):
                    loss = (model(micro.batch[1]) - micro.batch[1].prod(1, keepdim=True)).square().mean()
                if steps.count in (6, 10, 11) and run.rank.rank == 1:
                    loss = loss * math.nan
                if steps.backward(loss, micro):
                    checkpointer.save(steps.count, state, force=steps.count == until)
                    if steps.count == until:
                        break
        checkpointer.wait()
    assert steps.taken + steps.skipped == steps.count
    return weights(model).numpy().tobytes().hex()


@pytest.mark.parametrize("fused", [False, True])
def test_an_interrupted_training_ends_with_the_same_bits(fused: bool, tmp_path: Path) -> None:
    def end(folder: Path, *until: int) -> set[str]:
        for attempt, step in enumerate(until):
            outcomes = on_ranks(train_with_checkpoints, folder, step, fused, nodes=["a", "a"], attempt=attempt)
            assert [outcome.error for outcome in outcomes] == [None, None]
        return {outcome.value for outcome in outcomes}

    steady = end(tmp_path / "steady", STEPS)
    assert len(steady) == 1
    assert end(tmp_path / "interrupted", 7, 11, STEPS) == steady  # once right after a bad step, once between two


def train_into_bad_steps(run: CurrentRun) -> None:
    train("ddp", 12, bad={step: (1, math.nan) for step in (4, 6, 7, 8)}, bad_steps=3)


def test_too_many_bad_steps_in_a_row_end_the_attempt_with_the_evidence(tmp_path: Path) -> None:
    outcomes = on_ranks(train_into_bad_steps, tmp_path / "run", nodes=["a", "a"])
    for outcome in outcomes:
        assert outcome.last_line.endswith(
            "JobError: 3 bad steps in a row; step 9: the norm of the gradients is nan, the loss is nan on rank 1 "
            "(samples 38, 29, 22, 11 and 2 more)"
        )
    assert outcomes[0].log.count("a bad step is skipped: step") == 3


@pytest.mark.parametrize("precision", ["bf16", "fp16", "tf32"])
def test_lower_precision_learns(precision: str) -> None:
    model = net().float()
    steps = Steps(model, torch.optim.AdamW(model.parameters(), lr=0.02), precision=precision, clip=1.0)
    torch.manual_seed(4)
    x = torch.randn(64, 6)
    losses = []
    for _ in range(150):
        with steps.forward():
            loss = (model(x) - x.sum(1, keepdim=True).tanh()).float().square().mean()
        losses.append(loss.item())
        assert steps.backward(loss)
    assert losses[-1] < 0.2 * losses[0]
    assert steps.skipped == 0


def test_fp16_finds_its_scale_and_that_is_no_bad_step() -> None:
    model = nn.Linear(1, 1)
    steps = Steps(model, torch.optim.SGD(model.parameters(), lr=1e-9), precision="fp16", bad_steps=1)
    for _ in range(30):
        with steps.forward():
            loss = model(torch.full((1, 1), 300.0)).float().mean() * 100
        steps.backward(loss)
    assert steps.skipped == 0
    assert 0 < steps.taken < 30
    again = Steps(model, torch.optim.SGD(model.parameters(), lr=1e-9), precision="fp16")
    again.load_state_dict(steps.state_dict())
    assert again.state_dict() == steps.state_dict()


@pytest.mark.parametrize("fused", [False, True])
def test_a_spike_is_skipped_and_told(fused: bool, capsys: pytest.CaptureFixture[str]) -> None:
    model = net()
    steps = Steps(model, torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused), spikes=10.0)
    generator = torch.Generator().manual_seed(6)
    for step in range(60):
        x = torch.randn(16, 6, dtype=torch.float64, generator=generator)
        before = weights(model)
        steps.backward((model(x) - x.sum(1, keepdim=True)).square().mean() * (1000 if step in (5, 50) else 1))
        assert torch.equal(before, weights(model)) == (step == 50)
        if step == 40:
            state = steps.state_dict()
            steps = Steps(model, steps._optimizer, spikes=10.0)
            steps.load_state_dict(state)
    assert (steps.taken, steps.skipped) == (59, 1)  # the one at the beginning was too early to be told from others
    assert "a bad step is skipped: step 51: the norm of the gradients is" in capsys.readouterr().err


def test_accumulation_without_a_sampler() -> None:
    found = []
    for passes in (1, 3):
        model = net()
        steps = Steps(model, torch.optim.SGD(model.parameters(), lr=0.1), accumulate=passes)
        x = torch.randn(9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
        ended = [steps.backward(model(part).square().mean()) for part in x.chunk(passes)]
        assert ended == [False] * (passes - 1) + [True]
        found.append(weights(model).tolist())
    assert found[1] == pytest.approx(found[0], abs=1e-12)


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = Steps(model, optimizer, accumulate=2)
    with pytest.raises(JobError, match=r"the loss is no scalar but \[3, 1\]"):
        steps.backward(model(torch.zeros(3, 6, dtype=torch.float64)))
    with pytest.raises(JobError, match="the loss has no gradient"):
        steps.backward(model(torch.zeros(3, 6, dtype=torch.float64)).mean().detach())
    assert not steps.backward(model(torch.zeros(3, 6, dtype=torch.float64)).mean())
    with pytest.raises(JobError, match="save where steps"):
        steps.state_dict()
    for words, said in (
        ({"precision": "int4"}, "precision is 'int4'; valid: bf16, fp16, fp32, tf32"),
        ({"clip": 0}, "clip is 0; valid: a norm above 0"),
        ({"accumulate": 0}, "accumulate is 0; valid: a number from 1 on"),
        ({"spikes": -1}, "spikes is -1; valid: a number of deviations"),
        ({"bad_steps": 0}, "bad_steps is 0; valid: a number from 1 on"),
        ({"clip": "1.0"}, "clip is '1.0'; valid: a norm above 0"),
        ({"spikes": "10"}, "spikes is '10'; valid: a number of deviations"),
        ({"schedule": 0.5}, "schedule is 0.5; valid: a function of the steps"),
        ({"schedule": torch.optim.lr_scheduler.StepLR}, "schedule is the class StepLR; valid: an object of it"),
        ({"schedule": lambda step: math.nan}, "the schedule is nan after 0 steps; valid: a factor from 0 on"),
        ({"schedule": lambda step: -1.0}, "the schedule is -1.0 after 0 steps"),
        ({"stages": 3}, "stages is 3; valid: the process group"),
    ):
        with pytest.raises(JobError, match=said):
            Steps(model, optimizer, **words)
    with pytest.raises(JobError, match="4 of 4 parameters of the optimizer are not the model's"):
        Steps(net(), optimizer)
    for wrong, said in (((optimizer, model), "optimizer is a Sequential"), ((None, optimizer), "model is a NoneType")):
        with pytest.raises(JobError, match=said):
            Steps(*wrong)
    for tokens in (-1, math.nan, "5", True, 1.5):
        with pytest.raises(JobError, match=r"tokens is .*; valid: how many tokens"):
            Steps(model, optimizer).backward(model(torch.zeros(3, 6, dtype=torch.float64)).sum(), tokens=tokens)
        split = Steps(model, optimizer, out_of_memory="split")
        with pytest.raises(JobError, match="valid: how many tokens"):
            split.run(lambda x, tokens=tokens: (model(x).sum(), tokens), torch.zeros(3, 6, dtype=torch.float64))
    words = nn.Embedding(5, 2, sparse=True)
    steps = Steps(words, torch.optim.SGD(words.parameters(), lr=0.1))
    with pytest.raises(JobError, match="a gradient is sparse"):
        steps.backward(words(torch.tensor([1, 1])).mean())


@pytest.mark.parametrize("before", ["none", "torch"])
def test_a_schedule_that_a_run_did_not_have_goes_on_at_its_steps(before: str) -> None:
    def made(name: str) -> tuple[nn.Module, torch.optim.Optimizer, Steps]:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        of_torch = torch.optim.lr_scheduler.ConstantLR(optimizer) if name == "torch" else None
        return (
            model,
            optimizer,
            Steps(model, optimizer, schedule=schedules.linear(10) if name == "linear" else of_torch),
        )

    model, _, steps = made(before)
    for _ in range(4):
        steps.backward(next(model.parameters()).square().mean())
    _, optimizer, again = made("linear")
    again.load_state_dict(steps.state_dict())
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.6)
    made("none")[2].load_state_dict(again.state_dict())  # the other way round
    made("torch")[2].load_state_dict(made("none")[2].state_dict())


def make_without_wrapper(run: CurrentRun) -> None:
    model = net()
    Steps(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_a_model_whose_ranks_exchange_nothing_is_refused(tmp_path: Path) -> None:
    for outcome in on_ranks(make_without_wrapper, tmp_path / "run", nodes=["a", "a"]):
        assert "JobError: the 2 ranks would not exchange gradients: wrap the model" in outcome.last_line


def train_and_roll_back(run: CurrentRun, bad: tuple[int, int]) -> dict[str, Any]:
    """Trains with bad steps from bad[0] up to bad[1], and checkpoints every fourth step."""
    torch.set_num_threads(1)
    model = DistributedDataParallel(net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    steps = Steps(model, optimizer, schedule=schedules.cosine(40), bad_steps=3)
    sampler = ResumableSampler(SAMPLES, batch_size=6, global_batch=GLOBAL_BATCH, seed=3)
    state = {"model": model, "optimizer": optimizer, "steps": steps, "sampler": sampler, "epochs": 0}
    seen: list[int] = []
    at: dict[int, list[float]] = {}
    with Checkpointer({"shared": {"every": 4, "keep": 10}}, run) as checkpointer:
        checkpointer.restore(state)
        steps.roll_back_with(checkpointer, state)
        while steps.count < 24:
            for micro in sampler.accumulate(DataLoader(data(), batch_sampler=sampler)):
                seen += micro.indices()
                with steps.forward(micro):
                    loss = (model(micro.batch[1]) - micro.batch[1].prod(1, keepdim=True)).square().mean()
                if bad[0] <= steps.count < bad[1]:
                    loss = loss * math.nan
                if steps.backward(loss, micro):
                    at[steps.count] = weights(model).tolist()
                    checkpointer.save(steps.count, state)
                    if steps.count == 24:
                        break
    return {"at": at, "seen": seen, "taken": steps.taken, "skipped": steps.skipped, "left": sampler.consumed}


def test_too_many_bad_steps_roll_back_and_the_data_go_on(tmp_path: Path) -> None:
    outcomes = on_ranks(train_and_roll_back, tmp_path / "run", (9, 12), nodes=["a", "a"])
    assert [outcome.error for outcome in outcomes] == [None, None]
    one, other = (outcome.value for outcome in outcomes)
    assert one["at"] == other["at"]
    assert one["at"][12] == one["at"][8] != one["at"][9]  # the newest checkpoint from before the bad steps
    assert one["at"][13] != one["at"][9]  # with other data
    assert (one["taken"], one["skipped"]) == (20, 4)  # step 9, which was good, and the three bad ones
    assert len(one["seen"] + other["seen"]) == 24 * GLOBAL_BATCH - 4 * 3  # nothing was read twice
    said = "3 bad steps in a row; step 12: the norm of the gradients is nan, the loss is nan on rank 0 (samples "
    assert said in outcomes[0].log
    assert "; rolled back to the weights of step 8, and the data go on after the bad steps" in outcomes[0].log


def test_steps_that_stay_bad_roll_back_further_and_then_end_the_attempt(tmp_path: Path) -> None:
    outcomes = on_ranks(train_and_roll_back, tmp_path / "run", (9, 24), nodes=["a", "a"])
    for outcome in outcomes:
        assert outcome.last_line.endswith("; there is no checkpoint of an earlier step to roll back to")
    log = outcomes[0].log
    assert log.index("rolled back to the weights of step 8,") < log.index("rolled back to the weights of step 4,")
