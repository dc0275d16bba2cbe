"""`submit` and what it returns, with real runs on this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from private_cluster import wait_until

from slurmopt import Run, RunFailed, find, submit
from slurmopt.errors import ConfigError, RunError
from slurmopt.run_folder import events

HOSTILE = {"word": "a,b='${lr}' \\", "list": [1, "${x}", None], "nested": {"yes": True, "n": 1e-5}}
TRAIN = """
import time
import slurmopt

def main(config):
    from omegaconf import OmegaConf
    for step in range(3):
        slurmopt.progress(step + 1, total=3, loss=1.0 / (step + 1))
    print("rank", slurmopt.rank_facts().rank)
    return OmegaConf.to_container(config, resolve=True)["value"]

def broken(config):
    raise ValueError("</td><script>alert(1)</script>\\x1b[2J")

def waits(config):
    while not slurmopt.stop_requested():
        slurmopt.progress(1, total=9)
        time.sleep(0.05)

for function in (main, broken, waits):
    function.makes_process_group = True  # without torch
"""
pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    for name in ("main", "broken", "waits"):
        (tmp_path / "conf" / "experiment" / f"{name}.yaml").write_text(
            f"# @package _global_\nvalue: null\ntask: {{_target_: train.{name}}}\n"
            "launch: {backend: local}\nmonitor: {sampler: false}\n"
        )
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_is_submitted_waited_for_and_read(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = submit("main", value=HOSTILE)
    assert run.result(timeout=180) == HOSTILE
    assert (run.status.state, run.status.step, run.done) == ("finished", 3, True)
    assert run.metrics == {"loss": pytest.approx(1 / 3)}
    assert run.logs() == run.logs(0) == "rank 0\n"
    assert run.logs("all") == "[rank 0] rank 0\n"
    assert repr(run) == f"<Run {run.label}: finished, step 3/3, loss 0.3333>"
    assert not run.cancel()
    assert find() == find(run.label) == Run.find("main") == run
    assert (run.job_id or "").startswith("local-")
    assert (run.backend, run.name, run.folder.parent.parent) == ("local", "main", folder / "runs")
    assert capfd.readouterr().out == ""
    assert run.retry(resources={"time": "1h"}, again=True).result(timeout=180) == HOSTILE
    assert [event["event"] for event in events.read(run.folder / "events.jsonl")].count("submitted") == 2
    with pytest.raises(RunError, match=r"has finished, so there is nothing to retry; .* give again=True"):
        run.retry()


def test_a_failure_is_raised_with_its_traceback_and_shown_without_markup(folder: Path) -> None:
    run = submit("broken", {"launch.name": "<b>"})
    with pytest.raises(RunFailed, match="failed: user error, rank 0: ValueError") as raised:
        run.result(timeout=180)
    assert raised.value.state == "failed"
    assert "raise ValueError" in (raised.value.traceback or "")
    shown = run._repr_html_()
    assert "&lt;script&gt;alert(1)" in shown
    for text in (shown, repr(run), str(raised.value), run.logs(errors=True)):
        assert "\x1b" not in text or text == run.logs(errors=True)  # a log of one's own is as it was written
    assert "<script" not in shown
    assert "\n" not in repr(run)


def test_nothing_waits_until_it_is_asked_to_and_a_cancel_ends_the_run(folder: Path) -> None:
    run = submit("waits", "launch.wait=true")
    with pytest.raises(TimeoutError, match=f"{run.label} has not ended after 0.1 s; it goes on"):
        run.wait(timeout=0.1)
    wait_until(lambda: run.status.state == "running", 30, "the run runs")
    assert run.cancel()
    assert run.wait(timeout=180).state == "cancelled"
    with pytest.raises(RunFailed, match="was cancelled"):
        run.result()
    shutil.rmtree(run.folder)
    gone = f"{run.label} is gone: there is no folder {run.folder}"
    with pytest.raises(RunError, match=f"^{gone}$"):
        run.wait()
    assert repr(run) == f"<Run {gone}>"
    assert run._repr_html_() == f"<div>{gone}</div>"


def test_commands_have_interpolations_and_keys_of_their_own(folder: Path) -> None:
    run = submit(command="sh -c 'echo $0 $1' '${word}' ${n}", word="it's ${x}", n=3, launch={"backend": "local"})
    assert run.result(timeout=180) is None
    assert run.logs() == "it's ${x} 3\n"


def test_a_watch_prints_a_line_for_each_change_and_leaves_the_run_at_its_end(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = submit("main", value=1)
    run.watch()
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == repr(run)
    assert len(lines) == len(set(lines))
    assert all(line.startswith(f"<Run {run.label}: ") for line in lines)


def test_several_threads_and_tasks_submit_and_wait_at_once(folder: Path) -> None:
    made: list[Run] = []
    threads = [threading.Thread(target=lambda: made.append(submit("main", value=1))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def both() -> list[Any]:
        ticks, results = 0, asyncio.gather(*made)
        while not results.done():
            ticks += 1
            await asyncio.sleep(0.05)
        assert ticks > 3  # the event loop was free meanwhile
        status = await made[0].wait_async(timeout=5)
        assert status.state == "finished"
        return await results

    assert asyncio.run(both()) == [1, 1]
    assert len({run.folder for run in made}) == 2


def test_the_callers_hydra_session_folder_and_outputs_stay(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from hydra import compose, initialize_config_dir

    (folder / "own").mkdir()
    (folder / "own" / "app.yaml").write_text("mine: 1\n")
    with initialize_config_dir(str(folder / "own"), version_base=None):
        with pytest.raises(ConfigError, match=r"^valu: no such key"):
            submit("main", valu=1)
        assert compose("app")["mine"] == 1
    assert Path.cwd() == folder
    assert not (folder / "runs").exists()
    assert capfd.readouterr().out == ""


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "experiment": (lambda: submit("nope"), "there is no config 'experiment/nope'; available: .*main"),
    "function": (lambda: submit(print), r"experiment: is a function; a job imports it from a file: .*builtins\.print"),  # type: ignore[call-overload]
    "lambda": (lambda: submit(lambda _: 1), "experiment: is a function of this session; .*train.main"),  # type: ignore[call-overload]
    "word": (lambda: submit("main", "value"), "'value' is no override; valid: 'key=value'"),
    "override": (lambda: submit("a=1"), "experiment: 'a=1' is an override; they come after the name"),
    "number": (lambda: submit("main", 3), "3 is no override; valid: 'key=value', or a mapping"),  # type: ignore[call-overload]
    "option": (lambda: submit("main", "--wait"), "'--wait' is no override"),
    "key": (lambda: submit("main", valeu=1), r"valeu: no such key.*give {'\+valeu': …}"),
    "words": (lambda: submit(["true"]), r"experiment: .*; a command is submit\(command=\[…\]\)"),  # type: ignore[call-overload]
    "nodes": (lambda: submit(command="true", nodes=2), r"nodes: would be a key .*'resources.nodes': ….*{'\+nodes': …}"),
    "name": (lambda: submit(command="true", name="mine"), r"name: .*did you mean {'launch.name': …}\?"),
    "existing": (lambda: submit(None, "launch.run=x"), r"launch.run: to go on with a run: slurmopt.find\(RUN\)"),
    "dry run": (lambda: submit("main", launch={"dry_run": True}), "launch.dry_run: prints, and returns no run"),
    "one run": (lambda: submit("main", value=[1, 2], multirun=False), "value"),
    "nothing to run": (lambda: submit(), "task"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_one_line_and_nothing_is_submitted(folder: Path, name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(ConfigError, match=f"^{message}") as raised:
        call()
    assert "\n" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    assert not os.path.exists("runs")


def test_the_name_submit_is_the_function_whatever_was_imported() -> None:
    import slurmopt.api.submission

    assert slurmopt.submit is slurmopt.api.submission.submit
    with pytest.raises(ModuleNotFoundError):
        __import__("slurmopt.submit")
