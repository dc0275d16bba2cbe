"""The tutorials and the pages beside them: their files and commands work as printed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from docs.pages import Page, is_launch, parses
from json_answer import data_of

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")
PAGES = ["index", "from-laptop", "first-two-nodes", "from-submitit", "from-wandb", "faq", "ten-tasks"]
FUNCTION = "import slurmopt\n\n\ndef main(config):\n    return {'loss': 0.5}\n"
EXPERIMENT = "# @package _global_\ntask: {_target_: train.main}\nlr: 0.1\nseed: 0\nsteps: 5\nresources: {time: 10m}\n"
SCRIPT = (
    "# @package _global_\ntask: {command: 'python train.py --lr ${lr} --model ${model}'}\nlr: 0.01\nmodel: small\n"
    "resources: {time: 10m}\n"
)
STANDING = {"train.py": FUNCTION, "conf/experiment/mine.yaml": EXPERIMENT, "conf/experiment/script.yaml": SCRIPT}
"""What a reader of any page has in the folder, unless the page writes it."""


@pytest.fixture
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Page:
    """A page, its files pasted into an empty folder."""
    return Page(request.param, tmp_path)


def complete(page: Page) -> None:
    page.paste()
    if "slurmopt init" in page.typed():
        page.ends_well("slurmopt init")
    for name, text in STANDING.items():
        path = page.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(text)
    (page.folder / "bin").mkdir(exist_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, indirect=True)
def test_every_command_of_the_page_is_accepted(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch up to its job script, in the page's project; of other commands the words."""
    complete(page)
    torchrun = page.folder / "bin" / "torchrun"
    torchrun.symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(torchrun.parent), prepend=":")
    commands = [command for command in page.typed() if command.startswith("slurmopt ")]
    assert commands
    for command in commands:
        if is_launch(command):
            assert "#SBATCH" in page.ends_well(command, "--dry-run"), command
        else:
            assert parses(command), command


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("page", ["from-laptop"], indirect=True)
def test_the_laptops_training_learns_on_this_machine(page: Page) -> None:
    assert page.paste() == ["train.py", "conf/experiment/mine.yaml", "conf/cluster/ours.yaml"]
    local = [command for command in page.typed() if command.endswith("--local")]
    assert page.result(local[0])["result"]["loss"] < 1
    (profile,) = [command for command in page.typed() if "--dry-run" in command]
    script = page.ends_well(profile)
    assert "#SBATCH --partition=gpu" in script
    assert "#SBATCH --account=my-project" in script


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("page", ["first-two-nodes"], indirect=True)
def test_the_first_ranks_add_up(page: Page) -> None:
    page.paste()
    one, two, logs = page.typed()[:3]
    page.ends_well(one, "--local")
    page.ends_well(two, "--local")
    lines = sorted(line for line in page.ends_well(logs).splitlines() if " of 4 on " in line)
    assert [line.rpartition(": ")[2] for line in lines] == ["4"] * 4


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("page", ["first-two-nodes"], indirect=True)
def test_the_four_lines_train_with_torchrun(page: Page) -> None:
    blocks = page.source.split("```python\n")
    (page.folder / "train.py").write_text(blocks[2].partition("```")[0])
    argv = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
    ended = subprocess.run(argv, cwd=page.folder, capture_output=True, text=True, timeout=180)
    assert ended.returncode == 0, ended.stderr
    assert [ended.stdout.count(f"rank {rank}: loss ") for rank in (0, 1)] == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("page", ["from-submitit"], indirect=True)
def test_before_and_after_submitit_give_the_same_result(page: Page) -> None:
    pytest.importorskip("submitit")
    page.paste()
    config = page.folder / "conf" / "experiment" / "mine.yaml"
    config.write_text(config.read_text().replace("  gpus_per_node: 1\n  time: 4h\n  partition: gpu\n", "  time: 10m\n"))
    (after,) = [block for block in blocks_of(page, "python") if block.startswith("from slurmopt import submit\n")]
    environ = {**os.environ, "SLURMOPT_FOLDER": str(page.folder / "runs")}
    argv = [sys.executable, "-c", after]
    ended = subprocess.run(argv, cwd=page.folder, capture_output=True, text=True, timeout=180, env=environ)
    assert ended.returncode == 0, ended.stderr
    result, best = ended.stdout.splitlines()
    assert json.loads(result.replace("'", '"')) == {"loss": pytest.approx(0.9**49)}
    assert best == "{'lr': 0.1}"


@pytest.mark.parametrize("page", ["from-submitit"], indirect=True)
def test_what_is_shown_of_submitit_is_submitits(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    submitit = pytest.importorskip("submitit")
    (page.folder / "train.py").write_text("def main(lr=0.1):\n    return lr\n")
    monkeypatch.chdir(page.folder)
    monkeypatch.syspath_prepend(page.folder)
    monkeypatch.delitem(sys.modules, "train", raising=False)
    monkeypatch.setattr(submitit, "AutoExecutor", LocalExecutor)
    before = next(block for block in blocks_of(page, "python") if "executor" in block)
    names: dict[str, object] = {}
    exec(before, names)
    assert names["job"].result() == 0.1  # type: ignore[attr-defined]
    assert [job.result() for job in names["jobs"]] == [0.01, 0.03, 0.1]  # type: ignore[attr-defined]


def LocalExecutor(folder: str) -> object:  # noqa: N802 - stands for the class
    """submitit's executor of this machine in this process, as `executor="debug"`."""
    from submitit.auto.auto import AutoExecutor

    return AutoExecutor(folder, cluster="debug")


@pytest.mark.slow
@pytest.mark.parametrize("page", ["from-wandb"], indirect=True)
def test_the_sweep_of_wandb_is_a_search_here(page: Page) -> None:
    """A few trials, on this machine."""
    pytest.importorskip("optuna")
    page.paste()
    launch = next(command for command in page.typed() if command.startswith("slurmopt launch"))
    page.ends_well(f"{launch} sweep.trials=6 sweep.workers=2", "--local", "--wait")
    results = data_of(page.ends_well("slurmopt results --json"))
    assert results["states"] == {"finished": 6}
    assert (results["metric"], results["direction"]) == ("val_loss", "minimize")
    rows = {row["point"]: row["values"] for row in results["rows"]}
    assert all(
        1e-5 <= float(values["lr"]) <= 1e-1 and values["model"] in ("small", "large") for values in rows.values()
    )


def blocks_of(page: Page, language: str) -> list[str]:
    return [part.partition("```")[0] for part in page.source.split(f"```{language}\n")[1:]]
