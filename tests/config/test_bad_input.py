"""Bad input: one clear line on stderr that names the key, exit status 2, nothing made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slurmopt import launch

LOCAL = "launch.backend=local"
TASK = "task.command=[true]"


def profiled(name: str, *arguments: str) -> list[str]:
    """A task with a profiler and its arguments."""
    words = ",".join(f'"{word}"' for word in arguments)
    return [f"task.profiler={name}", f"task.profiler_options.arguments=[{words}]", TASK]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["resources.node=2", TASK], "resources.node: unknown key (did you mean 'nodes'?)"),
        (["+resources.node=2", TASK], "resources.node: unknown key (did you mean 'nodes'?)"),
        (["++resources.node=2", TASK], "resources.node: unknown key (did you mean 'nodes'?)"),
        (["+environment.container.imag=x", TASK], "environment.container.imag: unknown key (did you mean 'image'?)"),
        (["resource.nodes=2", TASK], "did you mean 'resources'?"),
        (["resources.nodes=two", TASK], "resources.nodes:"),
        (["resources.nodes=0", TASK], "resources.nodes: 0 is too few"),
        (["resources.nodes=4-2", TASK], "resources.nodes: '4-2' ends below its start; did you mean 2-4?"),
        (["resources.nodes=0-3", TASK], "resources.nodes: 0 is too few; valid: 1 or more"),
        (["resources.nodes=2-", TASK], "resources.nodes: '2-' is not valid; valid: a whole number from 1, or a range"),
        (["resources.nodes=a-b", TASK], "resources.nodes: 'a-b' is not valid"),
        (["resources.time=soon", TASK], "resources.time: not a time: 'soon'"),
        (["resources.memory=lots", TASK], "resources.memory: not a memory size"),
        (["resources.memory=1G", "resources.memory_per_cpu=1G", TASK], "only one of these can be set"),
        (["resources.gpu_type=h100", TASK], "resources.gpu_type: needs resources.gpus_per_node"),
        (["resources.time=1m", "restart.lead=5m", TASK], "restart.lead: 5m00s is not shorter than resources.time"),
        (["+resources.extra.array=1-5", TASK], "resources.extra.array: is set by slurmopt itself"),
        (["+resources.extra.Bad=1", TASK], "resources.extra.Bad: is not a long option"),
        (["resources.comment='a\nb'", TASK], "resources.comment: has control characters"),
        (["launch.name='a\nb'", TASK], "launch.name: has control characters"),
        (["launch.backend=slurm", TASK], "launch.backend: 'slurm' is not valid; valid: auto, sbatch"),
        (["launch.id=../x", TASK], "launch.id: '../x' is not an ID"),
        (["launch.template=nowhere.j2", TASK], "launch.template: there is no template 'nowhere.j2'"),
        (["environment.snapshot=maybe", TASK], "environment.snapshot: 'maybe' is not valid; valid: off, git, copy"),
        (["environment.workdir=/nowhere", TASK], "environment.workdir: '/nowhere' is not a folder"),
        (["+environment.variables.A-B=x", TASK], "environment.variables.A-B: is not a name"),
        (["launch.imports=[no_such_module]", TASK], "launch.imports: cannot import 'no_such_module'"),
        ([], "task: nothing to run; set task._target_"),
        (["launch.backend=local"], "task: nothing to run; set task._target_"),
        (["task=5"], "task: is a group of slurmopt's; nest your own value elsewhere"),
        (["~task"], "task: is a group of slurmopt's"),
        (["task.command=[]"], "task.command: is empty"),
        (["task.command='echo \"'"], "task.command: cannot be split into words"),
        (["task.profiler=nsight", TASK], "task.profiler: 'nsight' is not valid; valid: nsys, ncu, py-spy"),
        (["task.profiler=pyspy", TASK], "(did you mean 'py-spy'?)"),
        (["task.profiler_option.ranks=0", TASK], "did you mean 'profiler_options'?"),
        (["task.profiler_options.ranks=first", TASK], "task.profiler_options.ranks: 'first' is not valid; valid: auto"),
        (["task.profiler_options.seconds=0", TASK], "task.profiler_options.seconds: 0 is not valid"),
        (["task.profiler=ncu", "task.profiler_options.ranks=all", TASK], "ranks: 'all' is not valid: ncu replays"),
        (["task.profiler=py-spy", "task.profiler_options.cuda_range=true", TASK], "cuda_range: py-spy has no ranges"),
        (profiled("nsys", "--kill=sigterm"), "is not ended by its profiler"),
        (profiled("nsys", "--capture-range-e=stop"), "is not possible"),
        (profiled("nsys", "-oelsewhere"), "collected into the run folder"),
        (profiled("ncu", "-k", "gemm"), "NCCL kernels must not be replayed"),
        (profiled("ncu", "--replay-mode=application"), "again and again"),
        (profiled("py-spy", "--native"), "it stops the training"),
        (["-m", "+lr=1,2", "task.profiler=nsys", TASK], "task.profiler: profiles one run; leave out -m"),
        (profiled("nsys", "--"), "'--' would end the arguments"),
        (profiled("py-spy", "-in"), "'-in' is not possible with py-spy: it stops the training for each sample"),
        (["task.command=[true]", "task._target_=train.main"], "only one of these can be set"),
        (["task._target_=train"], "task._target_: 'train' is not package.module.function"),
        (["task._target_=train.mian"], "has no 'mian' (did you mean 'main'?)"),
        (["task._target_=trian.main"], "task._target_: there is no module 'trian'"),
        (["task._target_=broken.main"], "cannot be parsed"),
        (["+experiment=min"], "there is no config 'experiment/min' (did you mean 'mine'?)"),
        (["+experiment=wrong"], "(in experiment/wrong.yaml)"),
        (["+experiment=collision"], "task: is a group of slurmopt's; nest your own value elsewhere, such as my.task"),
        (["lr=1", TASK], "lr: no such key; to add one of your own write +lr="),
        (["+a=${nowhere}", TASK], "a: Interpolation key 'nowhere' not found"),
        (["+a=${nothing:1}", TASK], "a: cannot be resolved: Unsupported interpolation type nothing"),
        (["+a=???", TASK], "a: has no value (???)"),
        (["+environment.variables.A='${oc.decode:${oc.env:HOME}}'", TASK], "oc.env inside another resolver"),
        (["+experiment=latin"], "not valid UTF-8: "),
        (["+experiment=tabs"], "not valid YAML: "),
        (["task.command=[a"], "no viable alternative"),
        (["launch.run=x", "lr=3", "+b=1"], "launch.run: a run goes on with its stored config; leave out lr=3 +b=1"),
        (["launch.name=" + "n" * 300], "launch.name: has 300 characters; valid: up to 200"),
        (["environment.workdir=/" + "n" * 300, TASK], "file name too long"),
        (["environment.setup=['echo \"a']", TASK], "environment.setup: bash: line 1:"),
        (["environment.setup=[[a]]", TASK], "environment.setup: has "),
        (["environment.modules=[[a]]", TASK], "environment.modules"),
        (["+environment.variables.SLURMOPT_RUN_FOLDER=/x", TASK], "is reserved for slurmopt"),
        (["+environment.variables.IFS=0", TASK], "environment.variables.IFS: is set by bash or Slurm in the job"),
        (["+environment.variables.RANDOM='a[$(touch ran)]'", TASK], "environment.variables.RANDOM: is set by bash or"),
        (["+network.variables.SLURM_JOB_NUM_NODES='a[$(touch ran)]'", TASK], "is set by bash or Slurm in the job"),
        (["monitor.every=null", TASK], "monitor.every: null is not valid; without the key its default counts"),
        (["monitor.sources=null", TASK], "monitor.sources: null is not valid; without the key its default counts"),
        (["monitor.sources={a:1}", TASK], "is a list in place of a mapping, or the other way round; valid: [one, two]"),
        (["metrics.cloudwatch.every=null", TASK], "metrics.cloudwatch.every: null is not valid; without the key"),
        (["network.timeout=99999999d", TASK], "network.timeout: not a time"),
        (["+experiment=circle"], "in a circle"),
        ([" "], "' ' is not an override"),
        (["--cfg", "nope"], "argument -c/--cfg: invalid choice: 'nope' (choose from 'job', 'hydra', 'all')"),
        (["--flag"], "--flag: unknown option"),
        (["--config-dir", "nowhere", TASK], "--config-dir: 'nowhere' is not a folder, or you may not read it"),
        (["-m", TASK], "-m: nothing is swept"),
        (["a=1,2", TASK], "a: has several values; add -m for a sweep; for one list a=[1,2]"),
        (["task.command=['a\udcff']"], "is not valid UTF-8"),
    ],
)
def test_one_clear_line(words: list[str], expected: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiments = project / "conf" / "experiment"
    (experiments / "wrong.yaml").write_text("# @package _global_\nresources: {tim: 1}\n")
    (experiments / "collision.yaml").write_text("# @package _global_\ntask: mnist\n")
    (experiments / "latin.yaml").write_bytes("# @package _global_\nname: é\n".encode("latin-1"))
    (experiments / "tabs.yaml").write_text("# @package _global_\na:\n\t- b\n")
    (experiments / "circle.yaml").write_text("# @package _global_\ndefaults:\n  - circle\n")
    (project / "broken.py").write_text("def main(:\n")
    status = launch.main([LOCAL, *words] if "launch.backend" not in str(words) else words)
    output = capsys.readouterr()
    assert expected in output.err
    assert output.err.startswith("slurmopt: error: ")
    assert len(output.err.splitlines()) == 1
    assert status == 2
    assert output.out == ""
    assert not (project / "runs").exists()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("!!bool maybe", "'maybe' is no bool"),
        ("!!timestamp soon", "'soon' is no timestamp"),
        ("!!int ''", "'' is no int"),
        ("9" * 5000, "9999…' is no int"),
    ],
)
def test_a_value_that_its_tag_does_not_allow_is_told_with_its_place(
    value: str, said: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = project / "conf" / "experiment" / "wrong.yaml"
    file.write_text(f"# @package _global_\nresources: {{time: 1h}}\nmine: {value}\n")
    assert launch.main([LOCAL, TASK, "+experiment=wrong"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "slurmopt: error: not valid YAML: " in line
    assert f'{said} in "{file}", line 3' in line


@pytest.mark.parametrize("word", ["task._target_=${nope}", "task._target_=${oc.env:NOT_SET}"])
def test_a_task_that_cannot_be_resolved(word: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main([LOCAL, word]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("slurmopt: error: ")


def test_packages_that_checkpoints_need_are_missed_at_the_launch(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the job's Python is the launch's; another one may have them."""
    monkeypatch.setitem(sys.modules, "zstandard", None)
    words = [LOCAL, "checkpoint.shared.compression=zstd", "task._target_=train.main", "launch.dry_run=true"]
    assert launch.main(words) == 2
    assert "checkpoint.shared.compression: zstd needs the package zstandard: pip install" in capsys.readouterr().err
    assert launch.main([*words, "environment.modules=[python]"]) == 0


def test_no_sbatch_where_the_backend_needs_it(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert launch.main(["launch.backend=sbatch", TASK]) == 2
    assert "sbatch needs sbatch, which is not on PATH here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ nothing }}", "launch.template: mine.j2: 'nothing' is undefined"),
        ("{% for %}", "launch.template: mine.j2:"),
        ("{{ 1 / 0 }}", "launch.template: mine.j2: division by zero"),
    ],
)
def test_a_template_with_a_mistake(text: str, expected: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "mine.j2").write_text(text)
    assert launch.main([LOCAL, TASK, "launch.template=mine.j2"]) == 2
    assert expected in capsys.readouterr().err
