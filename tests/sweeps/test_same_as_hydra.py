"""A point computed from its number is what Hydra itself composes for that job of a multirun."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, open_dict

from slurmopt.config.composition.compose import compose, hydra_session
from slurmopt.grid import points_file
from slurmopt.grid.yaml_dump import dump
from slurmopt.sweeps.definition.describe import describe_sweep

FILES = {
    "model/small.yaml": "layers: 2\nwidth: 64\nparams: ${.layers}x${.width}\n",
    "model/large.yaml": "defaults: [small, /act@inner: relu, _self_]\nlayers: 12\nextra: {deep: [1, {two: 3}]}\n",
    "model/tiny.yaml": "layers: 1\nwidth: ${lr}\nparams: null\n",
    "act/relu.yaml": "name: relu\nslope: ${lr}\n",
    "act/gelu.yaml": "name: gelu\nslope: 0\nonly_gelu: 1\n",
    "data/web.yaml": "# @package data.train\npath: /web\nsize: 5\n",
    "data/books.yaml": "# @package data.train\npath: /books/${model.layers}\nsize: .inf\n",
    "opt/sgd.yaml": "name: sgd\nbetas: [0.9, 0.99]\nschedule: {warmup: 10, 3: three}\n",
    "opt/adam.yaml": "defaults: [sgd]\nname: adam\neps: 1e-8\n",
    "mode/fast.yaml": "# @package _global_\nlr: 5\nnested: {a: {b: 9}}\nmodel: {layers: 3}\n",
    "mode/slow.yaml": "# @package _global_\nseed: 3\n",
    "experiment/x.yaml": """# @package _global_
defaults:
  - /model: small
  - /act: gelu
  - /act@second.act: relu
  - /data: web
  - _self_
  - /opt: sgd
  - override /cluster: auto
lr: 0.1
seed: 0
text: plain
note: ${text} and ${lr} of ${model.layers} in ${opt.name}
nothing: null
flag: true
list: [1, 2, 3]
nested: {a: {b: 1, c: '${lr}'}, copy: '${nested.a}'}
clock: 10:00:00
job: ${hydra:job.num} ${hydra:job.override_dirname} ${hydra:runtime.choices.model} ${hydra:overrides.task}
direct: ${hydra.job.num}
out: ${hydra:runtime.output_dir}/x
python: ${python_version:major}
task:
  command: [echo, '${lr}', '${text}']
  checkpoints: ${text}
environment: {variables: {LR: '${lr}', SEED: '${seed}'}}
""",
    "experiment/y.yaml": "# @package _global_\ndefaults: [x]\ntext: other\nlist: ['${lr}']\n",
    "experiment/params.yaml": """# @package _global_
defaults: [x]
hydra:
  sweeper:
    params:
      lr: 1e-4,3e-4
      +experiment_note: one two,'quoted'
      seed: range(2)
      flag: false
      model: small,large
""",
}

CASES: dict[str, list[str]] = {
    "values": ["+experiment=x", "lr=1e-4,3e-4,1", "seed=range(3)", "text=a,'b c',null,true,1.0,nan,-inf"],
    "ranges": ["+experiment=x", "lr=range(0,1,0.1)", "seed=range(10,0,-3)", "text=sort(3,1,2)"],
    "floats": ["+experiment=x", "lr=range(0.1,1.2,0.3)", "seed=sort(range(5),reverse=true)", "flag=bool(0,1)"],
    "casts": ["+experiment=x", "lr=float(range(1,3))", "seed=int(1.5,2.5)", "text=choice(a,b)"],
    "groups": ["+experiment=x", "model=small,large,tiny", "data=glob(*)", "lr=0.1,0.2", "opt=adam,sgd"],
    "one choice leaves no trace in another": ["+experiment=x", "+mode=fast,slow", "seed=1,2"],
    "glob": ["+experiment=x", "model=glob([s*,t*],exclude=tiny)", "seed=1,2"],
    "packages": ["+experiment=x", "act@second.act=relu,gelu", "+opt@third=sgd,adam", "second.act.slope=1,2"],
    "new experiments": ["+experiment=x,y", "lr=5,6", "seed=range(2)"],
    "fixed before": ["+experiment=x", "+more={a:1,b:{c:2}}", "more.b.c=3,4", "~flag", "nested.a.b=1,2", "seed=7"],
    "added": ["+experiment=x", "+new=1,2", "++seed=3,4", "++brand.new.key=a,b", "+deep.er.list=[1,2],[{a:b}]"],
    "containers": ["+experiment=x", "list=[4],[],[5,[6]]", "nested.a={b:2},{b:3,c:4}", "++nested.copy={z:1},{z:{y:2}}"],
    "interpolated": ["+experiment=x", "text='${lr}','${model.params} x','${oc.select:no.key,dflt}'", "lr=1,'${seed}'"],
    "typed": ["+experiment=x", "environment.variables.LR=1e-3,007,a", "task.checkpoints=a,'b*'", "seed=1,2"],
    "quotes": ["+experiment=x", "text='it`s','a\\'b',\"say \\\"x\\\"\",a\\,b,'c:\\\\',d\\ e", "+k=$x,a$y,%,@,?,*"],
    "params": ["+experiment=params", "opt=sgd,adam"],
    "params overruled": ["+experiment=params", "lr=7", "model=tiny,small"],
    "unpicked": ["+experiment=x", "~data", "lr=1,2"],
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def jobs_of_hydra(words: list[str], params: dict[str, str]) -> list[list[str]]:
    """The overrides of every job, as Hydra's own sweeper makes them."""
    with hydra_session() as hydra:
        line = [f"{key}={value}" for key, value in params.items()] + words
        overrides = OverridesParser.create(config_loader=hydra.config_loader).parse_overrides(line)
        return [list(job) for job in BasicSweeper.split_arguments(overrides, None)[0]]


def composed_by_hydra(words: list[str], number: int, run: Path) -> dict[str, Any]:
    config = compose(words)
    with open_dict(config):
        config.hydra.job.num = number
        config.hydra.runtime.output_dir = str(run)
    HydraConfig.instance().cfg = config  # type: ignore[assignment]
    found = OmegaConf.to_container(config, resolve=True)
    assert isinstance(found, dict)
    del found["hydra"]
    return {str(key): value for key, value in found.items()}


def as_stored(value: Any) -> Any:
    """With `${` escaped in text that has no interpolations any more."""
    if isinstance(value, dict):
        return {key: as_stored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_stored(item) for item in value]
    return value.replace("${", r"\${") if isinstance(value, str) else value


def params_of(words: list[str]) -> dict[str, str]:
    config: DictConfig = compose([word for word in words if word == "+experiment=params"])
    return dict(config.hydra.sweeper.params or {}) if "params" in config.hydra.sweeper else {}


@pytest.mark.parametrize("case", CASES)
def test_a_point_is_what_hydra_composes_for_it(tree: Path, case: str) -> None:
    jobs = jobs_of_hydra(CASES[case], params_of(CASES[case]))
    points = describe_sweep(CASES[case]).points
    points_file.save(points, tree / "points.json")
    points = points_file.load(tree / "points.json")
    assert len(points) == len(jobs)
    sample = {len(jobs) - 1, random.Random(case).randrange(len(jobs))}
    for number in sorted(sample):
        run = tree / "runs" / str(number)
        ours, hydras = points.config(number, run), composed_by_hydra(jobs[number], number, run)
        assert repr(ours) == repr(as_stored(reordered(hydras, ours))), jobs[number]
        read = OmegaConf.to_container(OmegaConf.create(dump(ours)), resolve=False)
        assert repr(read) == repr(ours)
        assert set(points.overrides(number)) <= set(jobs[number])


def reordered(value: Any, like: Any) -> Any:
    """A key that an override adds can stand elsewhere; that is the one difference which is none."""
    if isinstance(value, dict) and isinstance(like, dict) and value.keys() == like.keys():
        return {key: reordered(value[key], item) for key, item in like.items()}
    return value
