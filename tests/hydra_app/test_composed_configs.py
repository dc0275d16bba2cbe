"""A Hydra application's packed points: composed once for each choice of config groups, and what Hydra makes of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.utils import JobRuntime
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from slurmopt.hydra_app.composed_configs import BaseConfigs

FILES = {
    "config.yaml": """
defaults:
  - typed
  - db: mysql
  - optional model@net: small
  - extra: null
  - use: ${db}
  - _self_
lr: 0.1
seed: 0
double: ${twice:${seed}}
place: ${hydra:job.override_dirname}/${hydra.job.name}/${now:%f}
hydra:
  searchpath: [file://SEARCHED]
  sweep:
    subdir: ${hydra.job.num}-${seed}-${db.port}-${now:%H-%M-%S}
  job:
    name: of ${lr}
    env_set: {SEED: '${seed}', LAST: '${db.port}', MOMENT: '${now:%H-%M-%S-%f}'}
    config: {override_dirname: {exclude_keys: [lr], kv_sep: ':'}}
""",
    "db/mysql.yaml": "port: 3306\nurl: ${lr}@${.port}\n",
    "db/postgres.yaml": "# @package _global_\ndb: {port: 5432, url: '${seed}'}\n",
    "model/small.yaml": "layers: 2\nsizes: [1, 2]\n",
    "model/large.yaml": "defaults: [small]\nlayers: 24\n",
    "use/mysql.yaml": "what: mysql\n",
    "use/postgres.yaml": "what: postgres\n",
    "extra/more.yaml": "much: ???\n",
    "searched/far/away.yaml": "found: ${seed}\n",
}
JOBS = [
    ["seed=1"],
    ["seed=2", "lr=0.2"],
    ["db=postgres", "seed=3"],
    ["seed=4", "db=postgres", "db.port=7"],
    ["db.port=7", "db=postgres", "+note='a=b, c'"],
    ["model@net=large", "seed=5"],
    ["model@net=large", "net.sizes=[3]", "~double"],
    ["db={port: 9}", "seed=6"],
    ["~model@net", "seed=7"],
    ["~model@net", "seed=8"],
    ["+far=away", "seed=9"],
    ["+far=away", "++far.found=1"],
    ["+model@other=small", "other.layers=3", "+other.new={a: [1, null]}"],
    ["+model@other=small", "extra=more", "extra.much=${seed}"],
    ["extra=more", "+model@other=small", "typed.level=high"],
    ["extra=more", "+model@other=small", "typed.level=low", "hydra.job.name=mine"],
    ["seed=1,2"],
    ["db=postgres", "sead=3"],
    ["db=nowhere", "seed=1"],
    ["db=nowhere", "seed=2"],
    ["typed.count=many"],
    ["typed.count=3"],
]


@dataclass
class Typed:
    level: str = "low"
    count: int = 1
    of: dict[str, int] = field(default_factory=dict)


@pytest.fixture
def bases(tmp_path: Path) -> Iterator[BaseConfigs]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace("SEARCHED", str(tmp_path / "searched")))
    ConfigStore.instance().store(name="typed", node={"typed": Typed})
    OmegaConf.register_new_resolver("twice", lambda one: 2 * one, replace=True)
    name = JobRuntime.instance().get("name") if "name" in JobRuntime.instance().conf else None
    with initialize_config_dir(str(tmp_path), version_base=None, job_name="app"):
        loader = GlobalHydra.instance().config_loader()
        words = ["hydra.sweep.dir=out/${seed}", "hydra/job_logging=none"]
        master = loader.load_configuration("config", words, run_mode=RunMode.MULTIRUN)
        assert master.hydra.job.env_set.MOMENT  # `now` has its answer
        yield BaseConfigs(loader, master)
    if name is not None:
        JobRuntime.instance().set("name", name)
    OmegaConf.clear_resolver("twice")


def _all_of(node: Any) -> Any:
    """A config with the types and flags of its nodes."""
    meta = node._metadata
    told = (type(node).__name__, str(meta.ref_type), str(meta.object_type), meta.flags)
    held = node._value()
    if isinstance(held, dict):
        return told, {key: _all_of(one) for key, one in held.items()}
    return told, [_all_of(one) for one in held] if isinstance(held, list) else held


def _made(how: Any, overrides: list[str]) -> DictConfig | str:
    try:
        config: DictConfig = how(overrides)
    except HydraException as error:
        return str(error)
    return config


@pytest.mark.parametrize("number", range(len(JOBS)))
def test_a_point_has_the_config_that_hydra_makes(bases: BaseConfigs, number: int) -> None:
    bases.prepare(2 * JOBS)
    here, there = _made(bases.config, JOBS[number]), _made(bases._by_hydra, JOBS[number])
    if isinstance(here, str) or isinstance(there, str):
        assert here == there
        return
    assert _all_of(here) == _all_of(there)
    for config in (here, there):
        config.hydra.job.num = number
        config.hydra.runtime.output_dir = "out"
        config.hydra.job.id = str(number)
    assert OmegaConf.to_yaml(here.hydra.job, resolve=True) == OmegaConf.to_yaml(there.hydra.job, resolve=True)
    assert here.hydra.sweep == there.hydra.sweep
    assert OmegaConf.get_cache(here) == OmegaConf.get_cache(there)


def test_each_choice_of_groups_is_composed_once(bases: BaseConfigs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [[f"db={db}", f"seed={seed}"] for seed in range(50) for db in ("mysql", "postgres")]
    composed: list[list[str]] = []
    by_hydra = bases._by_hydra
    monkeypatch.setattr(bases, "_by_hydra", lambda words: (composed.append(words), by_hydra(words))[1])
    bases.prepare([*jobs, ["db=mysql", "model@net=large"]])
    assert sorted(composed) == [["db=mysql"], ["db=postgres"]]
    assert bases.config(jobs[7]).seed == 3
    assert len(composed) == 2


def test_only_the_most_common_choices_are_composed_ahead(bases: BaseConfigs, monkeypatch: pytest.MonkeyPatch) -> None:
    common = [["db=postgres", f"seed={seed}"] for seed in range(3)]
    jobs = [[f"+model@at{place}=small", f"seed={seed}"] for place in range(40) for seed in range(2)]
    composed: list[list[str]] = []
    by_hydra = bases._by_hydra
    monkeypatch.setattr(bases, "_by_hydra", lambda words: (composed.append(words), by_hydra(words))[1])
    bases.prepare([*jobs, *common])
    assert composed[0] == ["db=postgres"]
    assert len(composed) == 32
    assert bases.config(jobs[-1]).at39.layers == 2
    assert composed[32:] == [jobs[-1]]


def test_an_override_that_hydra_cannot_look_up_is_its_own_points_error(bases: BaseConfigs) -> None:
    """Hydra's look into its store of configs raises TypeError for what lies below a config."""
    odd, plain = ["typed.yaml/below=1"], ["db=postgres", "seed=3"]
    bases.prepare([odd, plain, odd, plain])
    assert bases.config(plain).seed == 3
    told = _made(bases.config, odd)
    assert isinstance(told, str)
    assert told == _made(bases._by_hydra, odd)
