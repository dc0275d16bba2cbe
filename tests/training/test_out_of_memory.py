"""Steps under injected errors on one rank: running out of memory, NaN, spikes. Nothing hangs, and no rank differs."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from checkpoint.ranks import Outcome, on_ranks
from torch.utils.data import DataLoader
from training.test_steps import SAMPLES, WRAPS, data, net, weights

from slurmopt.errors import JobError
from slurmopt.job.worker.current_run import CurrentRun
from slurmopt.training import MicroBatch, ResumableSampler, Steps
from slurmopt.training.optimizer_steps.allocator import AllocatorWatch
from slurmopt.training.optimizer_steps.splitting import parts_of

INJECTIONS = 200
GLOBAL_BATCH, BATCH = 24, 6
"""Two micro-batches on each of two ranks; at the end of an epoch one of 4 or 5 samples."""
Fault = tuple[int, int, str]
"""The rank, the pass of a step on which it is, and what happens there: memory, nan, spike."""


End = tuple[str, int, int]
"""The bytes of all weights, the steps that were skipped, and the parts of each micro-batch in the end."""


def trained(wrap: str, steps: int, faults: dict[int, Fault], **options: Any) -> End:
    """Trains with faults at some steps."""
    torch.manual_seed(5)
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    model = WRAPS[wrap](net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    held = Steps(model, optimizer, clip=0.5, out_of_memory="split", bad_steps=None, **options)
    sampler = ResumableSampler(SAMPLES, batch_size=BATCH, global_batch=GLOBAL_BATCH, seed=3)
    passes = 0
    left = dict(faults)

    def loss_of(batch: list[torch.Tensor]) -> torch.Tensor:
        nonlocal passes
        passes += 1
        fault = left.get(held.count)
        is_here = fault is not None and fault[0] == rank and passes - 1 >= fault[1]
        if is_here and fault is not None and fault[2] == "memory":
            del left[held.count]
            raise torch.OutOfMemoryError("injected: tried to allocate 2.00 GiB")
        x = batch[1]
        loss = (model(x) - x.prod(1, keepdim=True)).square().mean()
        if is_here and fault is not None:
            return loss * (math.nan if fault[2] == "nan" else 1e9)
        return loss

    while held.count < steps:
        for micro in sampler.accumulate(DataLoader(data(), batch_sampler=sampler)):
            if held.run(loss_of, micro):
                passes = 0
                if held.count == steps:
                    break
    return weights(model).numpy().tobytes().hex(), held.skipped, held._recovery._splitting.parts  # type: ignore[union-attr]


def faults_of(seed: int, memory: int = 0) -> dict[int, Fault]:
    """Twenty faults in twenty steps, so many of them of the memory: a micro-batch can be split only so often."""
    generator = random.Random(seed)
    kinds = ["memory"] * memory + [generator.choice(["nan", "spike"]) for _ in range(20 - memory)]
    generator.shuffle(kinds)
    return {
        step: (generator.randrange(2), generator.randrange(1 if step % 3 == 2 else 2), kind)  # an epoch has three steps
        for step, kind in enumerate(kinds, 40)
    }


SEEDS = INJECTIONS // 2 // 20
WORLDS: dict[str, dict[str, Any]] = {
    "steady": {"steps": 60, "faults": {}},
    "memory": {"steps": 60, "faults": {44: (1, 0, "memory"), 51: (0, 1, "memory")}},
    **{f"seed {seed}": {"steps": 62, "faults": faults_of(seed, memory=2), "spikes": 50.0} for seed in range(SEEDS)},
    **{
        f"fsdp seed {seed}": {"wrap": "fsdp", "steps": 62, "faults": faults_of(seed), "spikes": 50.0}
        for seed in range(SEEDS)
    },
}


def train_on_rank(run: CurrentRun) -> dict[str, End]:
    torch.set_num_threads(1)
    found = {}
    for name, words in WORLDS.items():
        run.folder.micro_batches.unlink(missing_ok=True)  # each is a run of its own
        torch.distributed.barrier()
        found[name] = trained(**{"wrap": "ddp", **words})
        torch.distributed.barrier()
    return found


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    outcomes: list[Outcome] = on_ranks(train_on_rank, tmp_path_factory.mktemp("ranks") / "run", nodes=["a", "a"])
    assert [outcome.error for outcome in outcomes] == [None, None]
    return outcomes


def vector(end: End) -> torch.Tensor:
    return torch.frombuffer(bytearray.fromhex(end[0]), dtype=torch.float64)


def test_all_ranks_end_alike_after_200_injections(ends: list[Outcome]) -> None:
    assert sum(len(words["faults"]) for name, words in WORLDS.items() if "seed" in name) == INJECTIONS
    for name, words in WORLDS.items():
        one, other = (outcome.value[name] for outcome in ends)
        assert one == other, name
        assert vector(one).isfinite().all()
        kinds = [kind for _, _, kind in words["faults"].values()]
        assert one[1] == kinds.count("nan") + kinds.count("spike"), name  # no step but the bad ones
        assert one[2] == (1 if "memory" not in kinds else one[2])


def test_running_out_of_memory_skips_no_sample_and_changes_no_gradient(ends: list[Outcome]) -> None:
    steady, memory = (ends[0].value[name] for name in ("steady", "memory"))
    assert (steady[1:], memory[1:]) == ((0, 1), (0, 4))
    assert vector(memory).tolist() == pytest.approx(vector(steady).tolist(), abs=1e-9)
    log = ends[0].log
    assert "GPU out of memory on another rank; the step is done again, with each micro-batch in 2 parts" in log
    assert "GPU out of memory: injected: tried to allocate 2.00 GiB; the step is done again" in log


class FailsOnce(torch.autograd.Function):
    """The identity, whose backward pass runs out of memory once."""

    left = 1

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        if FailsOnce.left:
            FailsOnce.left -= 1
            raise torch.OutOfMemoryError("injected")
        return gradient


def test_one_process_recovers_in_a_backward_pass_too_with_the_same_random_numbers() -> None:
    def end(fails: int) -> tuple[list[float], list[float]]:
        torch.manual_seed(1)
        model = torch.nn.Linear(4, 1).double()
        steps = Steps(model, torch.optim.SGD(model.parameters(), lr=0.1), accumulate=2, out_of_memory="split")
        FailsOnce.left = fails
        drawn = []
        for number in range(6):
            x = torch.arange(24, dtype=torch.float64).reshape(6, 4) + number

            def loss_of(batch: torch.Tensor) -> torch.Tensor:
                drawn.append(torch.rand(()).item())
                return FailsOnce.apply(model(batch / 10)).square().mean()

            assert steps.run(loss_of, x) == (number % 2 == 1)
        assert steps.count == 3
        return weights(model).tolist(), drawn

    steady, drawn = end(0)
    again, drawn_again = end(1)
    assert again == pytest.approx(steady, abs=1e-12)
    assert drawn_again[0] == drawn_again[1] == drawn[0]


def test_what_cannot_be_split_ends_with_the_reason() -> None:
    model = torch.nn.Linear(4, 1)

    def run(batch: Any) -> None:
        steps = Steps(model, torch.optim.SGD(model.parameters(), lr=0.1), out_of_memory="split")
        steps.run(fails, batch)

    def fails(batch: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("tried to allocate 1 EiB")

    with pytest.raises(JobError, match="GPU out of memory, and a micro-batch cannot be split any more: tried to alloc"):
        run(torch.ones(5, 4))
    with pytest.raises(JobError, match="a batch of the type str cannot be split: it has no tensor with samples"):
        run("text")
    with pytest.raises(JobError, match="out_of_memory is 'retry'; valid: split, or None"):
        Steps(model, torch.optim.SGD(model.parameters(), lr=0.1), out_of_memory="retry")


def test_other_errors_of_a_gpu_are_raised() -> None:
    model = torch.nn.Linear(4, 1)
    steps = Steps(model, torch.optim.SGD(model.parameters(), lr=0.1), out_of_memory="split")

    def fails(batch: Any) -> torch.Tensor:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        steps.run(fails, torch.ones(5, 4))


class Pair(NamedTuple):
    first: torch.Tensor
    names: list[str]


@dataclass
class Held:
    x: torch.Tensor
    mask: torch.Tensor
    scale: float


def test_batches_of_any_form_are_split() -> None:
    x, mask = torch.arange(10).reshape(5, 2), torch.ones(3, 3)
    batch = {"pair": Pair(x, list("abcde")), "held": Held(x, mask, 0.5), "both": [x, (x,)]}
    parts = parts_of(MicroBatch(batch, 5, 2.5, True), 2)
    assert [(part.samples, part.weight, part.last) for part in parts] == [(2, 1.0, False), (3, 1.5, True)]
    for part, rows, names in zip(parts, (x[:2], x[2:]), ("ab", "cde"), strict=True):
        assert isinstance(part.batch["pair"], Pair)
        assert part.batch["pair"].names == list(names)
        held = part.batch["held"]
        assert (held.mask is mask, held.scale) == (True, 0.5)
        every = (part.batch["pair"].first, held.x, part.batch["both"][0], part.batch["both"][1][0])
        assert all(torch.equal(each, rows) for each in every)
    more = parts_of(MicroBatch(x[:2], 2, 1.0, True), 4)  # another rank has more samples
    assert [(part.samples, part.weight, len(part.batch)) for part in more] == [
        (1, 0.5, 1),
        (1, 0.5, 1),
        (0, 0.0, 1),
        (0, 0.0, 1),
    ]


@pytest.mark.parametrize(
    ("fragments", "advice"),
    [
        (0.3, "30% of it are fragments: set environment.variables.PYTORCH_ALLOC_CONF"),
        (0.0, "use a smaller micro-batch"),
    ],
)
def test_a_cache_that_is_given_back_again_and_again_is_told_once(
    fragments: float, advice: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """With simulated counters: there is no GPU."""
    stats = {"num_alloc_retries": 0, "reserved_bytes.all.current": 100.0}
    stats["inactive_split_bytes.all.current"] = 100.0 * fragments
    watch = AllocatorWatch(lambda: stats)
    for step in range(100):
        stats["num_alloc_retries"] += 1 if step == 35 or step > 60 else 0  # one alone is no trouble
        watch.stepped()
        if step == 60:
            assert capfd.readouterr().err == ""
    said = capfd.readouterr().err
    assert said.count("GPU memory is nearly full: its cache was given back 10 times in the last 10 steps") == 1
    assert advice in said
