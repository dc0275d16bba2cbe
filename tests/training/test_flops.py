"""`count_flops`: the operations of a model as one reckons them by hand, and what was not counted."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from slurmopt.errors import JobError  # noqa: E402
from slurmopt.ledger.mfu import transformer_flops_per_token  # noqa: E402
from slurmopt.training import count_flops  # noqa: E402

LAYERS, HEADS, SIZE, SEQUENCE = 2, 4, 16, 32
WIDTH = HEADS * SIZE


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, value: Any) -> Any:
        parts = self.qkv(value).view(*value.shape[:2], 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        value = value + self.out(attended.transpose(1, 2).reshape(value.shape))
        return value + self.down(nn.functional.gelu(self.up(value)))


class Decoder(nn.Module):  # type: ignore[misc]
    def __init__(self, recompute: bool | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 100, bias=False)
        self.recompute = recompute

    def forward(self, tokens: Any) -> Any:
        value = self.embedding(tokens)
        for block in self.blocks:
            value = block(value) if self.recompute is None else checkpoint(block, value, use_reentrant=self.recompute)
        return self.head(value)


TOKENS = torch.zeros(1, SEQUENCE, dtype=torch.long)


def test_a_decoder_has_the_operations_of_palms_formula() -> None:
    model = Decoder()
    parameters = sum(each.numel() for each in model.parameters()) - model.embedding.weight.numel()  # which is looked up
    told = transformer_flops_per_token(parameters, layers=LAYERS, heads=HEADS, head_size=SIZE, sequence=SEQUENCE)
    counted = count_flops(model, TOKENS)
    assert counted.model == counted.hardware == told * SEQUENCE
    assert counted.not_counted == {}


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_is_computed_twice_is_in_the_hardwares_operations_alone(reentrant: bool) -> None:
    plain, twice = count_flops(Decoder(), TOKENS), count_flops(Decoder(reentrant), TOKENS)
    assert twice.model == plain.model
    assert plain.model < twice.hardware < plain.model * 4 / 3  # the head is not computed again


def test_the_model_stays_as_it_is_and_its_size_takes_no_memory() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    count_flops(model, torch.zeros(2, 4))
    assert all(each.grad is None for each in model.parameters())
    assert (int(model[1].num_batches_tracked), model.training) == (0, False)
    huge = nn.Linear(10**6, 10**6, bias=False, device="meta")
    assert count_flops(huge, torch.zeros(1, 10**6, device="meta")).model == 4 * 10**12  # its input needs no gradient


def test_a_loss_of_the_users_own_and_wrappers() -> None:
    model = torch.compile(nn.Linear(4, 4, bias=False))
    alone = count_flops(model, torch.zeros(2, 4))
    assert alone.model == 2 * (2 * 2 * 4 * 4)
    assert count_flops(model, torch.zeros(2, 4), loss=lambda output: (output @ output.T).sum()).model > alone.model


def test_what_has_no_formula_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    @torch.library.custom_op("slurmopt_test::double", mutates_args=())
    def double(value: torch.Tensor) -> torch.Tensor:
        return value * 2

    double.register_fake(torch.empty_like)
    double.register_autograd(lambda context, gradient: gradient * 2)

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, value: Any) -> Any:
            return double(torch.fft.fft(self.inner(value)).real)

    counted = count_flops(Model(), torch.zeros(2, 4))
    assert counted.not_counted["slurmopt_test.double"] == 1
    assert any("fft" in name for name in counted.not_counted)
    assert "no formula for" in capfd.readouterr().err
    assert count_flops(nn.LSTM(4, 4), torch.zeros(3, 1, 4)).not_counted != {}


def test_a_model_whose_forward_looks_at_values_is_refused_in_one_line() -> None:
    class Model(nn.Linear):  # type: ignore[misc]
        def forward(self, value: Any) -> Any:
            return super().forward(value if value.sum() > 0 else -value)

    with pytest.raises(JobError, match="cannot be run on tensors without values") as caught:
        count_flops(Model(4, 4), torch.zeros(2, 4))
    assert "\n" not in str(caught.value)
    with pytest.raises(JobError, match="no tensor of its output has a gradient"):
        count_flops(nn.Linear(4, 4).requires_grad_(False), torch.zeros(2, 4))
