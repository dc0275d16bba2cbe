"""Tier 2: models traced without weights, against the same models run for real on a CPU."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

torch = pytest.importorskip("torch", reason="NOT TESTED: torch is not installed")
transformers = pytest.importorskip("transformers", reason="NOT TESTED: transformers is not installed")

from slurmopt.planning.memory.traced import trace_of  # noqa: E402
from slurmopt.training import fake_step  # noqa: E402 - it needs torch

SEQUENCE, BATCH = 128, 2
_GATED = {"hidden_size": 256, "intermediate_size": 704, "vocab_size": 2000, "num_hidden_layers": 4}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {**_GATED, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32},
    "qwen2": {**_GATED, "num_attention_heads": 8, "num_key_value_heads": 4},
    "gemma": {**_GATED, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64},
    "gpt2": {"n_embd": 256, "n_head": 8, "n_layer": 4, "vocab_size": 2000, "resid_pdrop": 0.0, "attn_pdrop": 0.0,
             "embd_pdrop": 0.0, "n_positions": 128},
    "gpt_neox": {**_GATED, "num_attention_heads": 4},
}  # fmt: skip
OWN = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(128)
        self.up, self.down = nn.Linear(128, 512), nn.Linear(512, 128)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.embed = nn.Embedding(1000, 128)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(128, 1000)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def build(layers=12):
    return Model(layers)


def whole():
    return Model(12)


def shallow(layers):
    return Model(layers)


def number():
    return 5


def alike(layers=12):
    return Model(3)


def negative(layers=-3):
    return Model(3)


class Pair(Model):
    def forward(self, ids):
        return super().forward(ids), None


def pair(layers=12):
    return Pair(layers)


def tied(layers=12):
    model = Model(layers)
    model.head.weight = model.embed.weight
    return model


class Decides(Model):
    def forward(self, ids):
        logits = super().forward(ids)
        return logits if logits.sum().item() > 0 else -logits


def decides(layers=12):
    return Decides(layers)
"""


def real(model: Any, precision: str) -> dict[str, float]:
    """Bytes of a real second step: weights, gradients, optimizer, and what autograd keeps until backward."""
    optimizer, ids = torch.optim.AdamW(model.parameters()), torch.zeros(BATCH, SEQUENCE, dtype=torch.long)
    weights = {each.untyped_storage().data_ptr() for each in model.parameters()} | {ids.untyped_storage().data_ptr()}
    cast = torch.autocast("cpu", torch.bfloat16) if precision == "autocast" else contextlib.nullcontext()
    kept: dict[int, int] = {}
    for step in range(2):
        kept.clear()
        alive: list[Any] = []

        def pack(tensor: Any, alive: list[Any] = alive) -> Any:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                kept[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)  # or another tensor gets its address
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), cast:
            loss = fake_step.loss_of(fake_step.logits_of(model(ids)), ids)
        loss.backward()
        gradients = sum(each.grad.nbytes for each in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        assert step < 2
    states = [value for state in optimizer.state.values() for value in state.values()]
    return {
        "weights": sum(each.nbytes for each in model.parameters()),
        "gradients": gradients,
        "optimizer": sum(value.nbytes for value in states),
        "activations": sum(kept.values()),
    }


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", sorted(MODELS))
def test_a_trace_is_what_a_real_step_holds(kind: str, precision: str) -> None:
    config = transformers.AutoConfig.for_model(kind, **MODELS[kind])
    request = {
        "config": {"model_type": kind, **config.to_dict()}, "sequence": SEQUENCE, "batch": BATCH,
        "precision": precision, "optimizer": "adamw",
    }  # fmt: skip
    answer = fake_step.answer(request)
    assert "error" not in answer, answer
    shallow, deep = answer["depths"]
    assert answer["layers"] == 4
    config._attn_implementation, config.use_cache = "slurmopt_causal", False  # what GPUs have, for real
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32 if precision == "fp32" else torch.bfloat16)
    try:
        model = transformers.AutoModelForCausalLM.from_config(config).train()
    finally:
        torch.set_default_dtype(before)
    measured = real(model, precision)
    for part, most in (("weights", 0.03), ("gradients", 0.03), ("optimizer", 0.03), ("activations", 0.10)):
        each = deep[part] - shallow[part]
        assert shallow[part] + 2 * each == pytest.approx(measured[part], rel=most), part
    for depth in (shallow, deep):
        for part in ("parameters", "weights", "gradients", "activations"):
            assert sum(module[part] for module in depth["modules"]) == pytest.approx(depth[part]), part
    told = trace_of(4, answer["depths"])
    (layer,) = (one for one in told.modules if one.count == 4)
    assert layer.name.endswith(".*")
    assert layer.parameters == told.layer_parameters
    whole = sum(one.count * one.activations.high for one in told.modules)
    assert whole == pytest.approx(shallow["activations"] + 2 * (deep["activations"] - shallow["activations"]))


def test_torch_has_the_tracker_that_is_used() -> None:
    """Private API: another version of torch may lack it."""
    found = fake_step.tracker()
    assert all(hasattr(found, name) for name in ("track_external", "get_tracker_snapshot", "memory_tracking"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(OWN)
    return tmp_path


def memory(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "slurmopt", "plan", "memory", "--sequence", "128", *words]
    return subprocess.run(argv, cwd=place, capture_output=True, text=True, timeout=180)


def test_ones_own_model_is_traced_by_its_function(place: Path) -> None:
    words = ("--gpus", "1", "--strategy", "ddp", "--precision", "fp32", "--json")
    by_layers, whole = (data_of(memory(place, "--build", f"mine:{name}", *words).stdout) for name in ("build", "whole"))
    count = 2 * 1000 * 128 + 1000 + 12 * (128 + 2 * 128 * 512 + 512 + 128)
    assert by_layers["model"]["parameters"] == whole["model"]["parameters"] == count
    assert (by_layers["model"]["layers"], whole["model"]["layers"]) == (12, 1)
    assert by_layers["tier"] == 2
    assert by_layers["parts"]["weights"] == [4 * count] * 2
    for end in (0, 1):
        kept = [
            each["parts"]["activations"][end] + each["parts"]["logits and loss"][end] for each in (by_layers, whole)
        ]
        assert kept[0] == pytest.approx(kept[1], rel=0.05)
    low, high = by_layers["parts"]["activations"]
    assert low < high, "nn.RMSNorm keeps less on a GPU"


def test_a_trace_is_split_by_module(place: Path) -> None:
    """128 tokens of width 128, 1,000 words, fp32: 64 KiB of an embedding, 512,000 bytes of logits. A block keeps its
    input's norm, the input and the output of GELU (512 wide), and leaves the sum."""
    words = ("--gpus", "1", "--strategy", "ddp", "--precision", "fp32")
    by_layers, whole = (
        data_of(memory(place, "--build", f"mine:{name}", *words, "--json").stdout)["modules"]
        for name in ("build", "whole")
    )
    assert by_layers == whole, "whether the layers were told apart by two depths or by their list"
    embed, block, head, rest = by_layers
    assert (embed["name"], embed["count"], embed["parameters"]) == ("embed", 1, 128_000)
    assert (embed["weights"], embed["gradients"], embed["activations"]) == (512_000, 512_000, [65_536, 65_536])
    assert (block["name"], block["count"]) == ("blocks.*", 12)
    assert block["parameters"] == 128 + 2 * 128 * 512 + 512 + 128
    low, high = block["activations"]
    assert high - low == 6 * 128 * 128, "nn.RMSNorm on a CPU"
    assert low == pytest.approx((2 * 512 + 2 * 128) * 128 * 4, rel=0.1)
    assert head["activations"] == [512_000, 512_000]
    assert rest["name"] == "the rest"
    assert abs(rest["weights"]) + abs(rest["gradients"]) == 0
    shown = memory(place, "--build", "mine:build", *words).stdout
    assert "blocks.*                  12     131,840" in shown


def test_a_shared_weight_counts_once(place: Path) -> None:
    words = ("--gpus", "1", "--strategy", "ddp", "--precision", "fp32", "--json")
    by_name = {each["name"]: each for each in data_of(memory(place, "--build", "mine:tied", *words).stdout)["modules"]}
    assert by_name["embed"]["weights"] == 512_000
    assert by_name["head"]["weights"] == 4000, "its bias"


def test_a_public_model_is_traced_by_transformers(place: Path) -> None:
    words = ("--model", "qwen2.5-0.5b", "--gpus", "1", "--strategy", "ddp", "--precision", "bf16", "--json")
    traced, formulas = (data_of(memory(place, *words, *more).stdout) for more in (("--trace",), ()))
    assert (traced["tier"], formulas["tier"]) == (2, 1)
    assert traced["parts"]["weights"] == formulas["parts"]["weights"]
    assert formulas["modules"] == []
    assert sum(each["count"] * each["weights"] for each in traced["modules"]) == traced["parts"]["weights"][0]
    assert traced["peak"][0] < 1.1 * formulas["peak"][1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--build", "mine:nope"), "mine:nope cannot be traced: AttributeError: module 'mine' has no attribute 'nope'"),
        (("--build", "no_such:build"), "no_such:build cannot be traced: ModuleNotFoundError"),
        (
            ("--build", "mine:number"),
            "mine:number cannot be traced: InputError: it returned int; valid: a torch.nn.Module",
        ),
        (("--build", "mine:alike"), "it has as many parameters with two layers as with three"),
        (("--build", "mine:negative"), "its parameter layers is no number of layers; valid: 1 to 10000"),
        (("--build", "mine:pair"), "the model returned tuple; valid: a tensor of logits, or an object with them"),
        (("--build", "mine:shallow"), "the default of its parameter layers is no number of layers; valid: 1 to 10000"),
        (("--build", "mine:decides"), "mine:decides cannot be traced: DataDependentOutputException"),
        (
            ("--build", "mine:build", "--recompute", "full"),
            "a traced model is whole; valid: without --tensor, --pipeline",
        ),
        (("--build", "mine:build", "--tensor", "2"), "a traced model is whole"),
        (
            ("--build", "mine:build", "--optimizer", "lion"),
            "--optimizer lion is not traced; valid: adamw, momentum, sgd",
        ),
        (("--build", "mine:build", "--model", "7B"), "--model and --build: one of them, not both"),
        (("--model", "7B", "--trace"), "--model: a count of parameters is no model to trace; valid: a config.json"),
    ],
)
def test_what_cannot_be_traced_is_one_line(place: Path, words: tuple[str, ...], message: str) -> None:
    done = memory(place, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_config_that_cannot_be_traced_falls_back_to_formulas(place: Path) -> None:
    config = {
        "model_type": "llama", "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 7, "head_dim": 8,
        "num_key_value_heads": 7, "intermediate_size": 128, "vocab_size": 100, "rope_scaling": "nonsense",
    }  # fmt: skip
    (place / "odd.json").write_text(json.dumps(config))
    done = memory(place, "--model", "odd.json", "--trace", "--json")
    assert done.returncode == 0
    assert "cannot be traced" in done.stderr
    assert "by formulas instead" in done.stderr
    assert data_of(done.stdout)["tier"] == 1
