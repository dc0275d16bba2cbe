"""The documentation is true: its links lead somewhere, its examples run, and nothing that exists is left out of it."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from sweeps.conftest import MadeSweep

from slurmopt.commands import COMMANDS
from slurmopt.config.checkpoint import Checkpoint
from slurmopt.config.schema import Settings
from slurmopt.config.sweep import Sweep
from slurmopt.config.task import Task
from slurmopt.restart import causes
from slurmopt.run_folder import events
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import EXIT_STATUS, Outcome
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.status import state
from slurmopt.slurm.script.job import Job
from slurmopt.slurm.script.render import context
from slurmopt.sweeps.definition.describe import describe_sweep

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))]
DEADLINE = 180
MAIN = "def main(config):\n"
SIGNAL = "    if current_run().attempt == 0:\n        os.kill(os.getpid(), signal.SIGUSR1)\n"
SIGNAL_TO_ONE_RANK = SIGNAL.replace("== 0:", "== 0 and rank_facts().rank == 0:")
THREADS = """
    from pathlib import Path
    print(*(path.read_text() for path in Path("/proc/self/task").glob("*/comm")))
"""
"""Appended to a script: prints its threads. Threads of gloo that run while the interpreter ends sometimes abort it."""
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def without_code(markdown: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", markdown, flags=re.DOTALL | re.MULTILINE))


def headings(markdown: str) -> set[str]:
    """The anchors of a page, as GitHub and MkDocs make them."""
    without = re.sub(r"^```.*?^```", "", markdown, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", without, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text(page), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in headings(target.read_text(encoding="utf-8"))):
            broken.append(link)
    assert broken == []


def test_every_page_is_linked_from_the_overview_and_listed_once() -> None:
    pages = {page.name for page in DOCS.glob("*.md")}
    assert pages - {"overview.md"} <= set(re.findall(r"\(([a-z0-9-]+\.md)[)#]", text("docs/overview.md")))
    listed = re.findall(r": ([a-z0-9-]+\.md)$", text("mkdocs.yml"), re.MULTILINE)
    assert sorted(listed) == sorted(pages)


def test_the_terminal_picture_asks_no_other_host_for_anything() -> None:
    picture = text("docs/terminal.svg")
    assert re.findall(r"https?://[^\"' ]+", picture) == ["http://www.w3.org/2000/svg"]
    assert "@import" not in picture
    assert "@font-face" not in picture


def run_of(folder: Path, *words: str) -> tuple[RunFolder, dict[str, Any]]:
    """The run of a launch on this machine, and its result.json."""
    command = [sys.executable, "-m", "slurmopt.launch", "launch.backend=local", "launch.json=true", *words]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=DEADLINE)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    run = RunFolder(Path(data_of(ended.stdout)["run"]))
    return run, json.loads(run.result.read_text())


def causes_of(run: RunFolder) -> list[str]:
    """Why each attempt of the run ended."""
    return [event["cause"] for event in events.read(run.events) if event["event"] == "end"]


def experiment(page: str, folder: Path) -> RunFolder:
    """The run of a page's first experiment: its first Python block and its first YAML block, pasted into `folder`."""
    (folder / "conf" / "experiment").mkdir(parents=True)
    (folder / "train.py").write_text(blocks(page, "python")[0])
    (folder / "conf" / "experiment" / "mine.yaml").write_text(blocks(page, "yaml")[0])
    run, result = run_of(folder, "+experiment=mine")
    assert result["outcome"] == "finished"
    return run


@pytest.fixture(scope="module")
def readme_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return experiment("README.md", tmp_path_factory.mktemp("readme"))


@needs_torch
def test_the_readmes_first_experiment_learns(readme_run: RunFolder) -> None:
    assert len(blocks("README.md", "python")) == len(blocks("README.md", "yaml")) == 1
    assert json.loads(readme_run.result.read_text())["result"]["loss"] < 0.01


@needs_torch
def test_the_training_of_the_training_loop_page_learns_on_two_ranks(tmp_path: Path) -> None:
    (program,) = blocks("docs/training-loop.md", "python")
    (tmp_path / "loop.py").write_text(program)
    words = ["task._target_=loop.main", "resources.tasks_per_node=2", "+lr=0.05", "+steps=80"]
    _, result = run_of(tmp_path, *words)
    assert result["result"]["loss"] < 0.5
    assert result["result"]["skipped"] == 0


@pytest.mark.slow
@needs_torch
def test_the_experiment_of_getting_started_runs(tmp_path: Path) -> None:
    run = experiment("docs/getting-started.md", tmp_path)
    assert json.loads(run.result.read_text())["result"] == {"sum": 2.0}


@needs_torch
def test_the_training_script_runs_before_its_change(tmp_path: Path) -> None:
    before = blocks("docs/training-code.md", "python")[0]
    (tmp_path / "before.py").write_text(before + THREADS)
    run, _ = run_of(tmp_path, f'task.command=["{sys.executable}",before.py]', "resources.tasks_per_node=2")
    assert "loss 0.0" in run.rank_log(0, 0).read_text()
    assert [run.rank_log(0, rank).read_text().count("gloo_runloop") for rank in (0, 1)] == [0, 0]


@pytest.mark.slow
@needs_torch
def test_the_training_code_saves_when_told_to_goes_on_from_there_and_learns(tmp_path: Path) -> None:
    """The page's promise: one rank gets the signal in the first attempt, and both save at one step and leave."""
    after = blocks("docs/training-code.md", "python")[1]
    (tmp_path / "after.py").write_text("import os, signal\n" + after.replace(MAIN, MAIN + SIGNAL_TO_ONE_RANK))
    words = ["task._target_=after.main", "resources.tasks_per_node=2", "+lr=0.05", "+steps=200"]
    run, result = run_of(tmp_path, *words)
    assert result["outcome"] == "finished"
    assert result["result"]["loss"] < 0.01
    assert causes_of(run) == ["time limit", "finished"]
    left_at = [json.loads(run.heartbeat(0, rank).read_text())["step"] for rank in (0, 1)]
    assert left_at[0] == left_at[1] < 200
    assert json.loads(run.heartbeat(1, 0).read_text())["first_step"] == left_at[0] + 1


@pytest.mark.slow
def test_the_search_without_steps_saves_when_told_to_and_goes_on_from_there(tmp_path: Path) -> None:
    search, on_stop = blocks("docs/training-code.md", "python")[2], "    on_stop(save)\n"
    (tmp_path / "search.py").write_text("import os, signal\n" + search.replace(on_stop, on_stop + SIGNAL))
    run, result = run_of(tmp_path, "task._target_=search.main", "+trials=50")
    assert result["result"]["tried"] == 50
    assert causes_of(run) == ["time limit", "finished"]
    assert json.loads((run.path / "best.json").read_text())["tried"] < 50


@pytest.mark.slow
def test_the_plain_command_saves_when_told_to_and_goes_on_from_there(tmp_path: Path) -> None:
    stop = 'stop = os.environ["SLURMOPT_ATTEMPT"] < "3"\n'  # three times in a row
    command = blocks("docs/survival.md", "python")[0].replace("stop = False\n", stop, 1)
    (tmp_path / "train.py").write_text("import os\n" + command)
    words = configured(tmp_path, blocks("docs/survival.md", "yaml")[-1])
    run, result = run_of(tmp_path, *words, f'task.command=["{sys.executable}",train.py]')
    assert result["outcome"] == "finished"
    assert causes_of(run) == ["asked", "asked", "asked", "finished"]  # its files are its progress
    assert {path.name for path in (tmp_path / "out").iterdir()} == {f"step-{step}" for step in (1, 2, 3, 10, 20)}


def test_the_restart_group_of_the_survival_page_is_valid(tmp_path: Path) -> None:
    example = "# @package _global_\ntask: {command: [true]}\n" + blocks("docs/survival.md", "yaml")[0]
    words = [*configured(tmp_path, example), "launch.backend=local", "launch.dry_run=true"]
    command = [sys.executable, "-m", "slurmopt.launch", *words]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE)
    assert ended.returncode == 0, ended.stderr
    assert '"node_failure":20' in ended.stdout


def configured(folder: Path, config: str) -> list[str]:
    """The words of a launch in `folder` with this experiment."""
    (folder / "conf" / "experiment").mkdir(parents=True)
    (folder / "conf" / "experiment" / "mine.yaml").write_text(config)
    return ["+experiment=mine"]


def test_every_cause_and_its_budget_is_documented() -> None:
    page = text("docs/survival.md")
    words = re.findall(r"^    ([a-zA-Z]+(?: [a-z]+)*)(?:   |$)", causes.__doc__ or "", re.MULTILINE)
    assert {"time limit", "GPU out of memory", "unknown"} <= set(words)
    assert [word for word in words if f"| `{word}` |" not in page] == []
    limits = {name: "no limit" if value is None else str(value) for name, value in asdict(causes.Budgets()).items()}
    assert [name for name, limit in limits.items() if f"`{name}`: {limit} |" not in page] == []
    assert [word for word in words if causes.key(word) not in limits] == ["finished", "cancelled"]


def test_every_field_of_a_heartbeat_and_of_the_verdict_is_documented() -> None:
    page = text("docs/run-folder.md")
    names = {item.name for item in fields(Heartbeat)} | {item.name for item in fields(Outcome)}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


@pytest.mark.slow
@needs_torch
def test_the_example_of_the_checkpoints_page_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(blocks("docs/checkpoints.md", "python")[0])
    run, result = run_of(tmp_path, "task._target_=train.main", "+steps=6", "checkpoint.shared.every=2")
    assert result["result"] == {"steps": 6}
    again, result = run_of(tmp_path, f"launch.run={run.path}")
    assert (again, result["attempt"], result["result"]) == (run, 1, {"steps": 6})
    assert [event["step"] for event in events.read(run.events) if event["event"] == "restored"] == [6]


def test_every_field_of_the_checkpoint_group_is_on_its_page() -> None:
    page = text("docs/checkpoints.md")
    groups = {field.name: getattr(Checkpoint(), field.name) for field in fields(Checkpoint)}
    names = {name for name, value in groups.items() if not is_dataclass(value)}
    names |= {field.name for value in groups.values() if is_dataclass(value) for field in fields(value)}
    assert [name for name in sorted(names) if not re.search(rf"`([a-z0-9]+\.)?{name}\b", page)] == []


def framework(name: str) -> str:
    """A section of the frameworks page."""
    return text("docs/frameworks.md").partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def block(section: str, language: str, number: int = 0) -> str:
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[number]


@pytest.mark.slow
@needs_torch
def test_the_nanogpt_of_the_frameworks_page_goes_on_after_a_kill_with_the_same_bits(tmp_path: Path) -> None:
    import torch

    section = framework("nanoGPT and the like")
    program, config = block(section, "python"), block(section, "yaml").replace("python", sys.executable)
    step = "    optimizer.step()\n"
    assert step in program
    once = '    if step == 55 and os.environ["SLURMOPT_ATTEMPT"] == "0":\n        os.kill(os.getpid(), 9)\n'
    states = []
    for name, text_of_it in (("calm", program), ("killed", program.replace(step, once + step))):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text(text_of_it)
        run, result = run_of(folder, *configured(folder, config))
        assert result["outcome"] == "finished"
        assert causes_of(run) == (["finished"] if name == "calm" else ["killed", "finished"])
        states.append(torch.load(folder / "out" / "ckpt.pt"))
    assert [state["step"] for state in states] == [100, 100]
    assert all(torch.equal(states[0]["model"][key], states[1]["model"][key]) for key in states[0]["model"])


@pytest.mark.parametrize(
    ("name", "number", "per"),
    [
        ("nanoGPT and the like", 0, "rank"),
        ("nanoGPT and the like", 1, "node"),
        ("torchtitan and other torchrun programs", 0, "node"),
        ("Lightning", 0, "rank"),
        ("HF Trainer", 0, "node"),
        ("accelerate", 0, "node"),
        ("DeepSpeed", 0, "node"),
        ("A batch script with srun", 0, "job"),
    ],
)
def test_the_configs_of_the_frameworks_page_run_as_often_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int, per: str
) -> None:
    """What the real packages then do is seen by scripts/chaos frameworks, which takes the programs from the page."""
    section = framework(name)
    for program in re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
        compile(program, name, "exec")
    (tmp_path / "train.py").touch()
    for script in re.findall(r"^```bash\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
        (tmp_path / "job.sh").write_text(script)
        (tmp_path / "job.sh").chmod(0o755)
    (tmp_path / "bin").mkdir()
    for launcher in ("python", "torchrun", "accelerate", "deepspeed"):
        (tmp_path / "bin" / launcher).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    words = [*configured(tmp_path, block(section, "yaml", number)), "launch.backend=local", "launch.dry_run=true"]
    command = [sys.executable, "-m", "slurmopt.launch", *words]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE)
    assert ended.returncode == 0, ended.stderr
    assert ("--per " + per in ended.stdout) is (per != "rank")
    assert (f"task.per={per}: " in ended.stderr) is (per != "rank")


def documented_files() -> list[re.Pattern[str]]:
    """The first column of the run folder's table, as patterns: K, R, JOBID and NODE stand for anything."""
    names = re.findall(r"^\| `([^`]+)` \|", text("docs/run-folder.md").split("## The journal")[0], re.MULTILINE)
    escaped = [re.escape(name) + (".*" if name.endswith("/") else "") for name in names]
    return [re.compile(re.sub(r"(?<=[-/])(K|R|JOBID|NODE)\b", "[^/]+", name)) for name in escaped]


@needs_torch
def test_every_file_that_a_run_leaves_is_documented(readme_run: RunFolder) -> None:
    files = [str(path.relative_to(readme_run.path)) for path in readme_run.path.rglob("*") if path.is_file()]
    assert len(files) > 8
    assert [file for file in files if not any(pattern.fullmatch(file) for pattern in documented_files())] == []


def test_every_file_that_the_layout_names_is_documented() -> None:
    run = RunFolder(Path("/runs/name/id"))
    named = [getattr(run, name) for name, kind in vars(RunFolder).items() if isinstance(kind, property)]
    named += [run.job_log("7"), run.rank_log(0, 1), run.heartbeat(0, 1), run.stop_request(0)]
    named += [
        run.series(0, "n1"),
        run.recent_series(0, "n1"),
        run.hang(0),
        run.stacks_request(0),
        run.slurm_said(0),
        run.requeue_wish(),
    ]
    table = text("docs/run-folder.md")
    for path in (path.relative_to(run.path) for path in named if isinstance(path, Path) and path != run.path):
        known = any(pattern.fullmatch(str(path)) for pattern in documented_files())
        assert known or f"`{path}/" in table, path


def test_every_event_outcome_and_state_is_documented() -> None:
    folder, commands = text("docs/run-folder.md"), text("docs/commands.md")
    words = re.findall(r"^    ([a-z-]+)  ", events.__doc__ or "", re.MULTILINE)
    assert {"created", "end"} <= set(words)
    assert [word for word in (*words, *EXIT_STATUS) if f"| `{word}` |" not in folder] == []
    states = re.findall(r"^([a-z]+)(?:   |$)", (state.__doc__ or "").partition("\n\n")[2], re.MULTILINE)
    assert {"running", "lost"} <= set(states)
    assert [word for word in states if f"| `{word}` |" not in commands] == []


@needs_torch
def test_every_event_that_a_run_wrote_is_documented(readme_run: RunFolder) -> None:
    page = text("docs/run-folder.md")
    rows = {word: row for word, row in re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| ([^|]*) \|$", page, re.MULTILINE)}
    for event in events.read(readme_run.events):
        assert [key for key in event if key not in ("time", "event") and f"`{key}`" not in rows[event["event"]]] == []


@needs_torch
def test_every_key_of_the_json_is_documented(readme_run: RunFolder) -> None:
    page = text("docs/commands.md")
    for command, words in (("status", [str(readme_run.path)]), ("list", ["--folder", str(readme_run.path.parents[1])])):
        argv = [sys.executable, "-m", "slurmopt", command, "--json", *words]
        ended = subprocess.run(argv, cwd=readme_run.path, capture_output=True, text=True, check=True, timeout=DEADLINE)
        (answer,) = data_of(ended.stdout)
        assert [key for key in answer if f"`{key}`" not in page] == []


def names_in(value: Any) -> set[str]:
    """All keys of a JSON value, but those that are a user's: an axis, a metric, a state, a key that a retry changed."""
    if isinstance(value, list):
        return set().union(*map(names_in, value))
    if not isinstance(value, dict):
        return set()
    users = ("values", "metrics", "states", "changes")
    return set(value).union(*(names_in(item) for key, item in value.items() if key not in users))


def test_every_key_of_a_sweeps_json_is_documented(tmp_path: Path) -> None:
    sweep = MadeSweep(tmp_path / "runs", "mine", "1", {}, lr=[0.1, 0.2, 0.3, 0.4]).submitted("0-3", "77")
    for point in range(3):
        sweep.ended(point, metrics={"loss": point % 2})
    sweep.ended(3, "user error", error="ValueError: no")
    page = text("docs/commands.md")
    for words in (["status", "mine"], ["status", "mine/1-2"], ["results", "mine"], ["list"]):
        argv = [sys.executable, "-m", "slurmopt", *words, "--json"]
        ended = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=DEADLINE)
        names = names_in(data_of(ended.stdout))
        assert len(names) > 5
        assert [name for name in sorted(names) if f"`{name}`" not in page] == [], words


def sweeps_experiment(folder: Path) -> list[str]:
    """The experiment of the sweeps page, pasted into `folder`; the words that pick it."""
    (folder / "train.py").write_text(blocks("docs/sweeps.md", "python")[0])
    (folder / "conf" / "model").mkdir(parents=True)
    for name, width in re.findall(r"`conf/model/(\w+\.yaml)` \(`(width: \d+)`\)", text("docs/sweeps.md")):
        (folder / "conf" / "model" / name).write_text(width)
    return configured(folder, blocks("docs/sweeps.md", "yaml")[0])


@pytest.mark.slow
@needs_torch
def test_the_training_of_the_sweeps_page_runs(tmp_path: Path) -> None:
    _, result = run_of(tmp_path, *sweeps_experiment(tmp_path), "steps=2", "model=large")
    assert list(result["result"]) == ["val_loss"]


def sweeps_typed_on(page: str) -> list[list[str]]:
    """The overrides of each `slurmopt launch -m` in a page's consoles."""
    typed = re.findall(r"^\$ slurmopt launch -m (.*)$", "".join(blocks(page, "console")), re.MULTILINE)
    return [shlex.split(line, comments=True) for line in typed]


@pytest.mark.slow
def test_the_sweeps_of_the_sweeps_page_have_the_points_that_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeps_experiment(tmp_path)
    rows = blocks("docs/sweeps.md", "text")[0]
    assert rows.startswith("lr,model,seed,+note\n")
    (tmp_path / "points.csv").write_text(rows)
    monkeypatch.chdir(tmp_path)
    typed = sweeps_typed_on("docs/sweeps.md")
    assert [len(describe_sweep(words).points) for words in typed] == [18, 6, 20, 1000, 20]
    assert len(describe_sweep(["+experiment=mine", "sweep.points=points.csv", "steps=1,2"]).points) == 6
    params, skip = blocks("docs/sweeps.md", "yaml")[1:3]
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(blocks("docs/sweeps.md", "yaml")[0] + params)
    assert len(describe_sweep(["+experiment=mine"]).points) == 10
    condition = skip.partition("skip: ")[2].strip()
    words = ["+experiment=mine", "lr=1e-4,1e-2", "model=small,large", "seed=0", f'sweep.skip="{condition}"']
    assert len(describe_sweep(words).points) == 3


def test_the_readmes_sweeps_have_twelve_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(tmp_path, blocks("README.md", "yaml")[0])
    (tmp_path / "train.py").write_text(blocks("README.md", "python")[0])
    monkeypatch.chdir(tmp_path)
    assert [len(describe_sweep(words).points) for words in sweeps_typed_on("README.md")] == [12, 12]


def test_every_key_of_the_sweep_group_is_on_a_page() -> None:
    page = text("docs/sweeps.md") + text("docs/search.md")
    names = [item.name for item in fields(Sweep)]
    assert [name for name in names if not re.search(rf"\bsweep\.{name}\b|^  {name}: ", page, re.MULTILINE)] == []


def test_every_file_of_a_sweep_is_documented() -> None:
    sweep = SweepFolder(Path("/runs/name/id"))
    named = [getattr(sweep, name) for name, kind in vars(SweepFolder).items() if isinstance(kind, property)]
    section = text("docs/run-folder.md").partition("## Sweeps")[2].partition("## The journal")[0]
    for path in (path.relative_to(sweep.path) for path in named if isinstance(path, Path) and path != sweep.path):
        assert f"`{path}`" in section or f"`{path}/" in section, path


def test_every_command_has_its_section() -> None:
    assert [name for name in COMMANDS if f"## slurmopt {name}\n" not in text("docs/commands.md")] == []


def test_every_name_that_a_template_may_use_is_documented() -> None:
    job = Job(
        name="name",
        folder=RunFolder(Path("/runs/name/id")),
        settings=Settings(task=Task(command=["true"])),
        workdir=Path("/"),
        python="python3",
        version="1",
        made_from="",
    )
    page = text("docs/templates.md")
    assert [name for name in context(job) if f"| `{name}` |" not in page] == []
    assert [name for name in vars(job) if f"`job.{name}`" not in page] == []


def test_the_configuration_reference_is_up_to_date() -> None:
    script = ROOT / "scripts" / "configuration_reference.py"
    if not script.exists():
        pytest.skip(f"NOT TESTED: {script} is not there")
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=DEADLINE)
    assert checked.returncode == 0, checked.stderr
