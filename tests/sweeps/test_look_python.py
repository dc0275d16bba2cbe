"""A sweep as a Python object: its points, results and best, and what a notebook shows of a hostile one."""

from __future__ import annotations

from typing import Any

import pytest

from slurmopt import Run, Sweep, find
from slurmopt.errors import RunError


def test_the_results_of_a_sweep_feed_a_table(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep(lr=[0.1, 0.2], seed=[0, 1]).submitted("0-3", "7")
    for point, loss in ((0, 0.5), (1, 0.25)):
        made.ended(point, metrics={"loss": loss, "seed": 9.0}, seconds=3.0, result=f"result {point}")
    made.ended(2, "user error", error="ValueError: no")
    in_queue(made, ("7_3", "PENDING", "Resources"))
    sweep = find(made.label)
    assert isinstance(sweep, Sweep)
    assert sweep.results()[0] == {
        "point": 0, "lr": 0.1, "seed": 0, "loss": 0.5, "metrics.seed": 9.0, "state": "finished", "seconds": 3.0,
        "attempt": 0, "error": None,
    }  # fmt: skip
    assert [row["error"] for row in sweep.results()] == [None, None, "ValueError: no"]
    assert (sweep.best("loss") or sweep.points[0]).number == 1
    with pytest.raises(RunError, match="has several metrics; name one of 'loss', 'seed'"):
        sweep.best()
    assert sweep.status.states == {"finished": 2, "failed": 1, "pending": 1}
    assert (sweep.status.done, sweep.status.failed, sweep.status.points, len(sweep)) == (False, 1, 4, 4)
    with pytest.raises(TimeoutError, match="has not ended after 0 s"):
        sweep.wait(timeout=0)
    assert [run.status.state for run in sweep] == ["finished", "finished", "failed", "pending"]
    assert sweep[1].result() == "result 1"
    assert sweep[1] == Run.find(f"{made.label}/1")
    assert repr(sweep) == f"<Sweep {made.label}: 2 finished · 1 failed · 1 pending>"
    some = find(f"{made.label}/1-2")
    assert isinstance(some, Sweep)
    assert [row["point"] for row in some.results()] == [1, 2]
    with pytest.raises(IndexError, match="has no point 4; valid: 0-3"):
        sweep[4]
    with pytest.raises(RunError, match="has not started yet"):
        sweep[3].logs()


def test_nothing_of_a_hostile_sweep_becomes_markup(make_sweep: Any, in_queue: Any) -> None:
    bad = "<script>alert('x')</script>\x1b[2J"
    made = make_sweep(**{"name": "a<b>c", "<img>": [bad, "&"]}).submitted("0-1", "7")
    made.ended(0, metrics={"<i>": 1.0})
    run = made.ended(1, "user error", error=bad)
    in_queue(made)
    shown = Sweep(made.folder)._repr_html_() + Sweep(made.folder)[1]._repr_html_() + repr(Sweep(made.folder)[1])
    shown_as_text = shown.partition("<Run ")[0]
    for text in ("<script", "<img", "<i>", "<b>c", "\x1b"):
        assert text not in shown_as_text
    assert "&lt;script&gt;" in shown_as_text
    run.events.write_text('{"event": "created", "time": 1}\n{"event": "end", "outcome": ["<b>"], "error": {"<b>": 1}}')
    assert "<b>1" not in Sweep(made.folder)[1]._repr_html_()
    made.folder.points_file.write_text("<script>")
    assert Sweep(made.folder)._repr_html_().startswith("<div>a&lt;b&gt;c/")
