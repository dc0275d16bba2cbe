"""`-m`: what a sweep is, and what is refused before anything is submitted."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path

import pytest

from slurmopt.errors import ConfigError
from slurmopt.grid import points_file
from slurmopt.grid.points import Points
from slurmopt.sweeps.definition.describe import Described, describe_sweep


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {
        "model/small.yaml": "layers: 2\n",
        "model/large.yaml": "layers: 12\nwide: 1\n",
        "experiment/x.yaml": """# @package _global_
defaults: [{/model: small}]
lr: 0.1
seed: 0
hours: 1
text: plain
opt: {wd: 0.0, betas: [1, 2]}
resources: {time: '${hours}h'}
task: {command: 'echo ${lr}'}
""",
        "experiment/slow.yaml": "# @package _global_\ndefaults: [x]\nhours: 9\n",
        "experiment/skips.yaml": "# @package _global_\ndefaults: [x]\nsweep: {skip: '${lr} > 1'}\n",
    }.items():
        path = tmp_path / "conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sweep(*words: str) -> Described:
    return describe_sweep(["+experiment=x", *words])


def all_values(points: Points) -> list[tuple[object, ...]]:
    return [tuple(points.values(point).values()) for point in range(len(points))]


def test_variables_of_the_job_need_not_be_set_at_the_launch() -> None:
    entry = "+storage.stage.a={source:/x,into:'${oc.env:NOT_SET_HERE}'}"
    described = sweep("seed=1,2", entry, "notify.webhook='${oc.env:NOT_SET_EITHER}'")
    assert described.settings.storage.stage["a"].into == "${oc.env:NOT_SET_HERE}"


def refused(*words: str) -> str:
    with pytest.raises(ConfigError) as error:
        sweep(*words)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing is swept"),
        (["lrr=1,2"], r"lrr: no such key \(did you mean 'lr'\?\); to add one write \+lrr="),
        (["opt.wdd=1,2"], r"opt.wdd: no such key \(did you mean 'opt.wd'\?\)"),
        (["task.chekpoints=a,b"], r"task.chekpoints: unknown key \(did you mean 'checkpoints'\?\)"),
        (["model.wide=1,2", "model=large,small"], r"model.wide: no such key.* \(with model=small\)"),
        (["checkpoint.async_save=1,maybe"], "checkpoint.async_save"),
        (["task.per=rank,node"], "task.per: cannot be swept"),
        (["resources.nodes=1,2"], "resources.nodes: cannot be swept: the points of a sweep share one array job"),
        (["environment.modules=[a],[b]"], "environment.modules: cannot be swept.*environment.variables"),
        (["hours=1,2"], r"hours: 2 changes resources.time \(from '1h' to '2h'\)"),
        (["launch.name=a,b"], "launch.name: cannot be swept"),
        (["launch.name='${lr}'", "lr=1,2"], r"lr: 2 changes launch.name"),
        (["launch.name='${hydra:job.num}'", "lr=1,2"], "launch.name"),
        (["lr=1,2,1"], r"lr: 1 comes twice \(value 1 and 3\)"),
        (["task.checkpoints=1,'1'"], "task.checkpoints: '1' comes twice"),
        (["lr=0.1,1e-1"], "lr: 0.1 comes twice"),
        (["lr=1,2", "lr=3,4"], "lr: is swept twice"),
        (["lr=1,2", "lr=3"], "lr: is swept, and lr=3 sets it too"),
        (["opt={wd:1},{wd:2}", "opt.wd=1,2"], "opt: is swept, and so is opt.wd, a part of it"),
        (["opt.wd=1,2", "opt={wd:3}"], r"opt.wd: is swept, and opt=\{wd:3\} sets part of the same"),
        (["+lr=1,2"], r"lr: 1: is there already; leave out the \+"),
        (["lr=???,1"], r"lr: '\?\?\?': has no value"),
        (["lr='${nope','b'"], r"lr: '\$\{nope'"),
        (["lr=1,???"], r"lr: '\?\?\?': has no value"),
        (["lr=a,'${nope'"], r"lr: '\$\{nope'"),
        (["~lr=1,2"], "deletes a key"),
        (["lr=range(5,5)"], "lr: 'lr=range.* has no values"),
        (["lr=range(1,5,0)"], "the step of a range cannot be 0"),
        (["lr=range(0,inf)"], "too many values"),
        (["lr=range(100000000)"], "too many values"),
        (["lr=interval(0,1)"], "lr: an interval has no end of values"),
        (["lr=glob(*)"], "globs are for config groups"),
        (["model=glob(x*)"], "model: .*has no values; available: large, small"),
        (["model=1,2"], "model: 1 is not a name of a config"),
        (["model=small,larg"], "no config 'model/larg'.*did you mean 'large'"),
        (["model=null", "lr=1,2"], "Config group override must be a string"),
        (["modle=small,large"], "modle"),
        (["hydra.job.name=a,b"], "settings of Hydra itself"),
        (["lr=a,b,["], "is not an override"),
        (["lr=int(a,b)"], "lr=int"),
        (["lr=1,2", "sweep.zip=[[lr,seed]]"], "sweep.zip: 'seed' is not swept"),
        (["lr=1,2", "seed=1,2,3", "sweep.zip=[[lr,seed]]"], "lr has 2, seed has 3"),
        (["lr=1,2", "seed=1,2", "sweep.zip=[[lr,seed],[seed,lr]]"], "comes twice"),
        (["lr=1,2", "sweep.skip='${lr} > 0'"], "leaves out all 2 points"),
        (["lr=1,2", "sweep.skip='${nope} > 0'"], "there is no key 'nope'"),
        (["lr=1,a", "sweep.skip='${lr} > 0'"], "sweep.skip: '>' not supported"),
        (["lr=1,2", "sweep.folder='${nope}'"], "sweep.folder: .*nope"),
        (["lr=1,2", "sweep.nope=1"], "sweep.nope: unknown key|no such key|sweep"),
        (["lr=1,2", "sweep.points=gone.csv"], "gone.csv cannot be read: no such file"),
        (["lr=1,2", "sweep.points=x.txt"], "neither .csv nor .jsonl"),
    ],
)
def test_a_sweep_that_cannot_be_run_is_one_line(words: list[str], message: str) -> None:
    assert re.search(message, refused(*words))


def test_choices_that_change_the_needs_or_the_sweep_are_refused() -> None:
    for other, message in (
        ("slow", r"changes resources.time \(from '1h' to '9h'\)"),
        ("skips", "sets other keys of sweep"),
    ):
        with pytest.raises(ConfigError, match=message):
            describe_sweep([f"+experiment=x,{other}", "lr=1,2"])


def test_a_later_combination_is_checked_too() -> None:
    assert "with model=small" in refused("model=large,small", "model.wide=3,4")


def test_the_first_points_config_is_a_composed_one() -> None:
    found = sweep("lr=3e-4,1", "model=large,small", "+new=a,b")
    assert (found.config.lr, found.config.model.layers, found.config.new) == (3e-4, 12, "a")
    assert found.config.hydra.overrides.task == ["+experiment=x", "lr=0.0003", "model=large", "+new=a"]
    assert found.settings.task.command == ["echo", 0.0003]


def test_keys_advance_together_or_are_combined() -> None:
    points = sweep("lr=1,2", "seed=range(2)", "text=a,b", "sweep.zip=[[lr,text]]").points
    assert [axis.keys for axis in points.axes] == [("lr", "text"), ("seed",)]
    assert all_values(points) == [(1, "a", 0), (1, "a", 1), (2, "b", 0), (2, "b", 1)]


def test_a_zipped_choice_is_composed_where_it_occurs() -> None:
    points = sweep("model=small,large", "lr=1,2", "sweep.zip=[[model,lr]]").points
    assert len(points.bases) == 2
    assert [points.config(point, Path("x"))["model"]["layers"] for point in (0, 1)] == [2, 12]


def test_a_shuffled_axis_stays_as_it_was_shuffled(tmp_path: Path) -> None:
    points = sweep("seed=shuffle(range(50))").points
    points_file.save(points, tmp_path / "points.json")
    assert all_values(points_file.load(tmp_path / "points.json")) == all_values(points)
    assert sorted(all_values(points)) == [(number,) for number in range(50)]


def test_skipped_points_have_no_number() -> None:
    words = ["lr=1,2,3", "model=small,large", "seed=0,1"]
    whole = all_values(sweep(*words).points)
    for skip, keep in (
        ("${lr} > 1 and ${model} == 'large'", lambda lr, model, seed: not (lr > 1 and model == "large")),
        ("${model.layers} * ${lr} >= 12", lambda lr, model, seed: {"small": 2, "large": 12}[model] * lr < 12),
        ("${seed} in [1] or not ${lr} < 3", lambda lr, model, seed: not (seed == 1 or lr >= 3)),
        ("${task.command} == ['echo', 2]", lambda lr, model, seed: lr != 2),
        ("${hours} == 1 and ${seed} == 0", lambda lr, model, seed: seed != 0),
    ):
        found = sweep(*words, f'sweep.skip="{skip}"').points
        assert all_values(found) == [values for values in whole if keep(*values)], skip


def test_names_are_harmless_and_unlike(tmp_path: Path) -> None:
    points = sweep("text=a/b,'a b','../$(x)',c", "model=small,large", "sweep.folder='${text}_${model}'").points
    names = [points.name(point) for point in range(len(points))]
    assert names == [
        "a-b_small-00000", "a-b_large-00001", "a-b_small-00002", "a-b_large-00003",
        "x-_small", "x-_large", "c_small", "c_large",
    ]  # fmt: skip
    of_config = sweep("lr=1,2", "sweep.folder='${lr}-${model.layers}-${hydra:job.num}'").points
    assert [of_config.name(point) for point in (0, 1)] == ["1-2-0-00000", "2-2-1-00001"]


def test_a_csv_file_has_typed_values(tree: Path) -> None:
    (tree / "p.csv").write_text(
        "\ufefflr, model, +tag, text\n"
        "1e-3,small,1,\"[1,{a: b}]\"\n.5,large,007,'1'\n"
        '1,small,null,"a, $(b) = c"\n2,small,"x,y",range(3)\n'
    )
    points = sweep("sweep.points=p.csv", "seed=range(2)").points
    assert all_values(points)[::2] == [
        (0.001, "small", 1, [1, {"a": "b"}], 0),
        (0.5, "large", "007", "1", 0),
        (1, "small", None, "a, $(b) = c", 0),
        (2, "small", "x,y", "range(3)", 0),
    ]
    assert points.config(2, Path("x"))["model"] == {"layers": 12, "wide": 1}


def test_a_jsonl_file_keeps_its_types(tree: Path) -> None:
    rows = [{"lr": 1, "+tag": "1"}, {"lr": 1.0, "+tag": None}, {"lr": True, "+tag": {"a": [1]}}]
    (tree / "p.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert repr(all_values(sweep("sweep.points=p.jsonl").points)) == repr([tuple(row.values()) for row in rows])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "lr\n1\n2,3\n", r"a.csv:3 has 2 values for 1 keys"),
        ("a.csv", "lr,seed\n1,\n", r"a.csv:2 seed is empty; write null"),
        ("a.csv", "lr,lr\n1,2\n", "'lr' twice"),
        ("a.csv", "lr,+lr\n1,2\n", "'lr' twice"),
        ("a.csv", "l r\n1\n", "'l r' is not a key"),
        ("a.csv", 'lr\n"[1,2"\n', r"a.csv:2 lr: .*cannot be read"),
        ("a.csv", "lr\n", "has no points"),
        ("a.csv", "", "has no points"),
        ("a.csv", "lr\n1\n1\n", r"1 comes twice \(value 1 and 2\)"),
        ("a.csv", "model\n3\n", r"a.csv:2 model: 3 is not a name of a config"),
        ("a.csv", "lrr\n1\n", "did you mean 'lr'"),
        ("a.csv", "resources.nodes\n1\n", "cannot be swept"),
        ("a.jsonl", '{"lr": 1}\n{"lr": \n', r"a.jsonl:2 is not valid JSON"),
        ("a.jsonl", '{"lr": 1}\n[1]\n', r"a.jsonl:2 is not an object"),
        ("a.jsonl", '{"lr": 1}\n{"seed": 1}\n', r"a.jsonl:2 lacks 'lr', unlike line 1"),
        ("a.jsonl", '{"lr": 1, "lr": 2}\n', "a key comes twice"),
        ("a.jsonl", '{"text": "\\ud800"}\n', "a.jsonl:1 has half of a character"),
        ("a.jsonl", "{}\n", "names no key"),
    ],
)
def test_a_bad_line_of_a_file_is_named(tree: Path, name: str, text: str, message: str) -> None:
    (tree / name).write_text(text)
    assert re.search(message, refused(f"sweep.points={name}"))


def test_a_file_that_is_no_text_is_refused(tree: Path) -> None:
    (tree / "a.csv").write_bytes(b"lr\n\xff\n")
    assert "not valid UTF-8" in refused("sweep.points=a.csv")
    (tree / "d.csv").mkdir()
    assert "d.csv cannot be read" in refused("sweep.points=d.csv")


HOSTILE = [
    "a'b\"c\\",
    "line\nline",
    "$(touch x) `x` ; & | > <",
    "ünïcödé 😀 \u2028",
    "\t tab ",
    "'",
    "\\",
    "- a: b # c",
    *("x" * 70_000, "null", "1e-3", "", "0x10", "yes", "\x07\x1b[0m", "\x85\ufeff\udc80"[:2]),
]


@pytest.mark.slow
def test_hostile_values_arrive_unchanged(tree: Path) -> None:
    from omegaconf import OmegaConf

    from slurmopt.grid.yaml_dump import dump

    (tree / "p.jsonl").write_text("".join(json.dumps({"text": value}) + "\n" for value in HOSTILE))
    points = sweep("sweep.points=p.jsonl").points
    points_file.save(points, tree / "points.json")
    points = points_file.load(tree / "points.json")
    for number, value in enumerate(HOSTILE):
        (tree / "config.yaml").write_text(dump(points.config(number, tree)), encoding="utf-8")
        assert OmegaConf.to_container(OmegaConf.load(tree / "config.yaml"))["text"] == value  # type: ignore[index,call-overload]
        assert points.values(number)["text"] == value


@pytest.mark.slow
def test_a_million_points_cost_no_more_than_two(tree: Path) -> None:
    sweep("seed=1,2")
    tracemalloc.start()
    points = sweep("seed=range(1000000)", "lr=range(0.5,2.5,0.5)").points
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    points_file.save(points, tree / "points.json")
    assert len(points) == 4_000_000
    assert points.values(3_999_999) == {"seed": 999_999, "lr": 2.0}
    assert (tree / "points.json").stat().st_size < 50_000
    assert peak < 30 * 2**20


def test_a_search_has_intervals_and_values_of_its_own() -> None:
    words = ["lr=tag(log,interval(1e-5,1e-1))", "model=small,large", "sweep.search=tpe", "sweep.trials=64"]
    points = sweep(*words).points
    assert (points.kind, len(points)) == ("search", 64)
    assert points.axes[0].columns[0].tags == ("log",)
    config = points.config(3, Path("x"), {"lr": 0.25, "model": "large"})
    assert (config["lr"], config["model"]["layers"]) == (0.25, 12)
    with pytest.raises(ConfigError, match="known once the search has chosen"):
        points.values(3)
    named = sweep(*words, "sweep.folder='${lr}_${model}'").points
    assert named.name(3, {"lr": 0.25, "model": "large"}) == "0.25_large-00003"


def test_modules_that_register_resolvers_are_imported(tree: Path) -> None:
    (tree / "own_resolvers.py").write_text(
        "from omegaconf import OmegaConf\nOmegaConf.register_new_resolver('twice', lambda x: 2 * x, replace=True)\n"
    )
    points = sweep("seed=1,2", "text='${twice:${seed}}'", "launch.imports=[own_resolvers]").points
    assert points.config(1, Path("x"))["text"] == 4
    assert "cannot import 'no_such'" in refused("seed=1,2", "launch.imports=[no_such]")


def test_secrets_stay_in_the_environment(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    points = sweep("seed=1,2", "text='${oc.env:TOKEN}'").points
    points_file.save(points, tree / "points.json")
    assert points.config(1, Path("x"))["text"] == "${oc.env:TOKEN}"
    assert "s3cret" not in (tree / "points.json").read_text()
