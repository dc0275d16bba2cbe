"""What somebody writes who checks their code with mypy --strict; scripts/check checks it so, and nothing runs it."""

from __future__ import annotations

from typing import Any

from typing_extensions import assert_type

from slurmopt import Run, RunFailed, Sweep, find, submit


def run_and_sweep() -> None:
    run = submit("mine", lr=0.1, betas=(0.9, 0.95), model={"layers": 3}, name=None)
    assert_type(run, Run)
    assert_type(submit("mine", {"resources.nodes": 2}), Run)
    assert_type(submit("mine", "lr=0.1", multirun=False), Run)
    assert_type(submit(command=["python", "train.py"]), Run)
    assert_type(submit("mine", lr=[0.1, 0.2], seed=range(3)), Sweep)
    assert_type(submit("mine", "lr=0.1,0.2", multirun=True), Sweep)
    assert_type(submit("mine", "lr=0.1"), Run | Sweep)
    assert_type(run.metrics, dict[str, float])
    assert_type(run.status.step, int | None)
    assert_type(run.logs(), str)
    assert_type(run.done, bool)
    assert_type(find("mine"), Run | Sweep)
    assert_type(Run.find("mine"), Run)


async def waits(run: Run, sweep: Sweep) -> None:
    try:
        result: Any = await run
        print(result)
    except RunFailed as failed:
        assert_type(failed.state, str)
        assert_type(failed.traceback, str | None)
    assert_type(await sweep, list[dict[str, Any]])
    assert_type((await sweep.wait_async(timeout=10)).states, dict[str, int])
    for point in sweep:
        assert_type(point, Run)
    best = sweep.best()
    if best is not None:
        assert_type(best.values, dict[str, Any])
