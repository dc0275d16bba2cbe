"""The shapes of models against the models that transformers builds, and against what their authors state."""

from __future__ import annotations

from typing import Any

import pytest

from slurmopt.errors import ConfigError
from slurmopt.planning.models import config_file
from slurmopt.planning.models.public import NAMES, public_model
from slurmopt.planning.models.transformer import of_parameters

LAYERS = 5  # DeepSeek's first three are dense


@pytest.mark.parametrize("kind", sorted(config_file._FAMILIES))
def test_a_family_has_as_many_parameters_as_transformers_builds(kind: str) -> None:
    torch = pytest.importorskip("torch", reason="NOT TESTED: torch is not installed")
    transformers = pytest.importorskip("transformers", reason="NOT TESTED: transformers is not installed")
    config = transformers.AutoConfig.for_model(kind)
    config.num_hidden_layers = LAYERS
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:LAYERS]
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert config_file.transformer(config.to_dict(), kind, "config.json").parameters == counted


@pytest.mark.parametrize(
    ("name", "count"),
    [  # of the files of weights that their authors publish
        ("gpt2", 124_439_808),
        ("gpt2-xl", 1_557_611_200),
        ("pythia-6.9b", 6_857_302_016),
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("llama-2-70b", 68_976_648_192),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("llama-3.1-405b", 405_853_388_800),
        ("llama-3.2-1b", 1_235_814_400),
        ("mistral-7b", 7_241_732_096),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("gemma-2-9b", 9_241_705_984),
        ("phi-3-mini", 3_821_079_552),
    ],
)
def test_a_public_model_has_as_many_parameters_as_its_file(name: str, count: int) -> None:
    model = public_model(name)
    assert model is not None
    assert model.parameters == count


@pytest.mark.parametrize(
    ("name", "active"), [("mixtral-8x7b", 12.9e9), ("deepseek-v3", 37e9), ("qwen3-30b-a3b", 3.3e9)]
)
def test_active_parameters_are_those_that_the_authors_state(name: str, active: float) -> None:
    model = public_model(name)
    assert model is not None
    assert model.active_parameters == pytest.approx(active, rel=0.02)


def test_all_names_have_a_model() -> None:
    assert all(public_model(name) is not None for name in NAMES)
    assert public_model("gpt-5") is None


@pytest.mark.parametrize("count", [1e8, 7e9, 7e10, 1e12])
def test_a_count_becomes_a_model_of_about_that_size(count: float) -> None:
    assert of_parameters(count).parameters == pytest.approx(count, rel=0.03)


LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_type": "mamba"}, "config.json: model_type: 'mamba' is not known; valid: deepseek_v3, gemma"),
        ({"model_type": None}, "config.json: model_type: is missing; valid"),
        ({"hidden_size": 0}, "config.json: hidden_size: 0 is not valid; valid: a whole number, 1 to 10,000,000"),
        ({"hidden_size": "64"}, "config.json: hidden_size: '64' is not valid"),
        ({"num_hidden_layers": -1}, "config.json: num_hidden_layers: -1 is not valid"),
        ({"num_hidden_layers": True}, "config.json: num_hidden_layers: True is not valid"),
        ({"vocab_size": None}, "config.json: vocab_size: is missing; valid: a whole number, 1 to"),
        ({"vocab_size": 1e9}, "config.json: vocab_size: 1000000000.0 is not valid"),
        ({"model_type": [1]}, "config.json: model_type: '[1]' is not known; valid"),
        ({"tie_word_embeddings": "no"}, "config.json: tie_word_embeddings: 'no' is not valid; valid: true, false"),
        ({"num_key_value_heads": 3}, "config.json: num_key_value_heads: 3 does not divide 4 heads"),
    ],
)
def test_a_config_that_is_wrong_is_one_line(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config_file.transformer({**LLAMA, **changed}, "mine", "config.json")
    assert str(raised.value).startswith(message)


def test_the_text_part_of_a_model_with_pictures_counts() -> None:
    both = {"model_type": "gemma3", "text_config": LLAMA}
    assert config_file.transformer(both, "a", "b") == config_file.transformer(LLAMA, "a", "b")
