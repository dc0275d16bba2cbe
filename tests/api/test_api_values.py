"""What Python gives to `submit` arrives in the job's config as it is, or is refused in one line."""

from __future__ import annotations

import enum
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from slurmopt.api.overrides import Overrides
from slurmopt.api.values import same
from slurmopt.config.composition.compose import compose
from slurmopt.config.composition.deferred import storable
from slurmopt.errors import ConfigError
from slurmopt.grid.yaml_dump import dump_stored
from slurmopt.job.rank_args import RankArgs
from slurmopt.job.worker.function import load_config
from slurmopt.launching.sweep_plan import plan_sweep
from slurmopt.run_folder.access.files import replace_text
from slurmopt.run_folder.layout import RunFolder

FEW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXTS = st.text(max_size=12) | st.sampled_from(
    [
        "${lr}",
        "${",
        "cost ${ a",
        "\\${lr}",
        "a\\\\${x}",
        "${oc.env:HOME}",
        "$",
        "{}",
        "[1,2]",
        "a,b",
        "'",
        '"',
        "\\'",
        "\\",
        "1e-3",
        "007",
        "null",
        "true",
        "nan",
        "choice(1,2)",
        "a=b",
        " ",
        "#",
        "x: y",
        "\n",
        "\x00",
        "\x85",
        "é",
        "yes",
        "10:00",
        "~",
    ]
)
KEYS = st.text("abc_-./ ", min_size=1, max_size=6).filter(lambda key: key == key.strip())
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)

AXES = st.lists(SCALARS.filter(lambda value: value != "???"), min_size=1, max_size=4, unique_by=repr).filter(
    lambda values: values != [None]
)


def words(**keys: Any) -> list[str]:
    return [*Overrides([], adds=True).of_items(keys.items())]


def config_of_the_job(folder: Path, overrides: list[str]) -> Any:
    """The config as a launch stores it, and as a rank reads it."""
    run = RunFolder(folder)
    stored = storable(compose(["task.command=x", *overrides]), leave_out="hydra")
    replace_text(run.config, dump_stored(stored))
    call = RankArgs(run, 1, 1, "gloo", "rank", None, [], "train.main", None)
    return OmegaConf.to_container(load_config(call), resolve=True)


@FEW
@given(values=st.lists(VALUES, min_size=6, max_size=6))
def test_any_value_arrives_in_the_config_of_the_job_unchanged(tmp_path: Path, values: list[Any]) -> None:
    overrides, kept = [], {}
    for number, value in enumerate(values):
        try:
            overrides += words(**{f"key{number}": tuple(value) if isinstance(value, list) else value})
            kept[f"key{number}"] = value
        except ConfigError:  # keys that the grammar of overrides lacks, and the text that stands for a missing value
            assert not is_writable(value)
    config = config_of_the_job(tmp_path, overrides)
    for key, value in kept.items():
        assert same(config[key], value)


def is_writable(value: Any) -> bool:
    """Whether there is no reason to refuse `value`."""
    if isinstance(value, dict):
        return all(key[0] in "abc_" and key.isidentifier() for key in value) and all(map(is_writable, value.values()))
    if isinstance(value, list):
        return all(map(is_writable, value))
    return bool(value != "???")


@FEW
@given(
    values=st.lists(SCALARS.filter(lambda value: value != "???"), min_size=1, max_size=4, unique_by=repr).filter(
        lambda values: values != [None]
    )
)
def test_the_items_of_a_list_are_the_values_of_an_axis(values: list[Any]) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Override

    (word,) = words(value=values)
    override = OverridesParser.create().parse_override(word)
    assert override.is_sweep_override()
    texts = [Override._convert_value(element) for element in override.sweep_iterator()]
    plain = [OmegaConf.to_container(OmegaConf.create({"value": text}), resolve=True)["value"] for text in texts]  # type: ignore[index,call-overload]
    assert same(plain, values)


def test_a_list_is_an_axis_and_a_tuple_one_value() -> None:
    assert words(lr=[0.1, 0.2], seed=range(1, 9, 2), betas=(0.9, 0.95), one=[True]) == [
        "+lr=0.1,0.2", "+seed=range(1,9,2)", "+betas=[0.9,0.95]", "+one=choice(true)",
    ]  # fmt: skip
    assert words(model={"sizes": [1, 2]}) == ["+model={sizes:[1,2]}"]


def test_numbers_of_numpy_paths_and_enums_become_plain_values() -> None:
    numpy = pytest.importorskip("numpy")

    class Kind(enum.Enum):
        FAST = 1

    made = words(a=numpy.float64(0.1), b=numpy.int64(3), c=numpy.linspace(0, 1, 3), d=Path("/x y"), e=Kind.FAST)
    assert made == ["+a=0.1", "+b=3", "+c=0.0,0.5,1.0", "+d='/x y'", "+e=FAST"]


def test_mappings_of_slurmopts_groups_are_given_key_by_key() -> None:
    made = words(resources={"nodes": 2}, environment={"variables": {"A": "b c"}}, checkpoint={"shared": {"keep": 2}})
    assert made == ["resources.nodes=2", "++environment.variables.A='b c'", "checkpoint.shared.keep=2"]


def circular() -> dict[str, Any]:
    inner: dict[str, Any] = {}
    inner["a"] = inner
    return inner


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "lr: is of type object; valid: a text, number"),
        ({1, 2}, "lr: is of type set"),
        ([None], "lr: a list of None alone is no axis"),
        ([], r"lr: has no values; for an empty list in the config give an empty tuple: \(\)"),
        ("???", "lr: '\\?\\?\\?' stands for a missing value"),
        ("\ud800", "lr: .* is not valid Unicode"),
        ({"it's": 1}, "lr: .* has keys that no override can give; put it into a config file"),
        ({"1": 1}, "lr: .* has keys that no override can give"),
        ({None: 1}, "lr: None is no key"),
        (circular(), "lr: is nested too deeply, or in itself"),
        ((1, [b"x"]), r"lr\[1\]\[0\]: is of type bytes"),
    ],
)
def test_what_no_config_can_hold_is_refused_in_one_line(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}") as raised:
        words(lr=value)
    assert "\n" not in str(raised.value)


def test_an_odd_key_is_refused() -> None:
    for key in ("a b", "a=b", "", "x'y", 3):
        with pytest.raises(ConfigError, match="is no key; valid: such as lr"):
            list(Overrides([], adds=True).of_items([(key, 1)]))


def test_a_sweep_over_hostile_texts_keeps_them(project: Path) -> None:
    texts = ["a,b", "${x}", "it's", "\\", "[1]"]
    planned = plan_sweep(["task.command=echo", *words(word=texts), "launch.backend=sbatch", "launch.check=false"])
    configs = [planned.points.config(point, project) for point in range(len(texts))]
    assert [OmegaConf.to_container(OmegaConf.create(config), resolve=True)["word"] for config in configs] == texts  # type: ignore[index,call-overload]


def test_nan_and_infinity_are_kept(tmp_path: Path) -> None:
    config = config_of_the_job(tmp_path, words(a=math.nan, b=(math.inf, -math.inf)))
    assert math.isnan(config["a"])
    assert json.dumps(config["b"]) == "[Infinity, -Infinity]"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
