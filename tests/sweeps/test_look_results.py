"""`slurmopt results`: tables, pictures, and what each axis does."""

from __future__ import annotations

import builtins
import csv
import io
import random
import re
import tracemalloc
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

from slurmopt.cli import main
from slurmopt.commands import results as command
from slurmopt.grid.point_folder import make_point
from slurmopt.sweeps.results.importance import AxisValues, effects, explained
from slurmopt.sweeps.status.query import sweep_states


def printed(capsys: Any, *words: str) -> str:
    assert main(list(words)) == 0
    return str(capsys.readouterr().out)


def refused(capsys: Any, *words: str) -> str:
    assert main(list(words)) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return str(said)


@pytest.fixture
def ended(make_sweep: Any) -> Any:
    """The loss is lr + seed / 100; point 5 failed, and point 4 gave no number."""
    made = make_sweep(sweep={"metric": "val_loss"}).submitted("0-5", "7")
    for point in range(4):
        values = made.points.values(point)
        loss = values["lr"] + values["seed"] / 100
        made.ended(point, metrics={"val_loss": loss + 5, "step_time": 0.5}, result={"val_loss": loss}, seconds=2.0)
    made.ended(4, metrics={"val_loss": float("nan")}, result=None)
    made.ended(5, "user error", error="ValueError: no", metrics={"val_loss": -100.0})
    return made


def test_the_best_comes_first_and_failures_last(ended: Any, capsys: Any) -> None:
    table = printed(capsys, "results", "mine")
    rows = [line.split() for line in table.splitlines()[3:9]]
    assert [row[0] for row in rows] == ["0", "1", "2", "3", "4", "5"]
    assert rows[0][1:4] == ["0.1", "0", "0.1"]  # what the function returned counts more than its last progress
    assert "failed: ValueError: no" in table
    assert "best: point 0, smallest val_loss 0.1, with lr=0.1 seed=0" in table
    assert "best: point 3" in printed(capsys, "results", "mine", "--maximize")


def test_json_has_all_of_it_and_is_documented(ended: Any, capsys: Any) -> None:
    found = data_of(printed(capsys, "results", "mine", "--json"))
    documented = re.findall(r"[a-z_]+", str(command.__doc__))
    assert [key for key in [*found, *found["rows"][0], *found["effects"][0]] if key not in documented] == []
    assert (found["best"], found["metric"], found["direction"]) == (0, "val_loss", "minimize")
    assert found["rows"][4]["metrics"] == {"val_loss": None}
    assert found["rows"][5]["state"] == "failed"
    assert [one["axis"] for one in found["effects"]] == ["lr", "seed"]


def test_the_sweeps_own_direction_and_another_metric(make_sweep: Any, capsys: Any) -> None:
    made = make_sweep(sweep={"metric": "acc", "direction": "maximize"}).submitted("0-5", "7")
    for point in range(6):
        made.ended(point, metrics={"acc": point / 10, "loss": 1 - point / 10}, seconds=float(point))
    assert "best: point 5, largest acc 0.5" in printed(capsys, "results", "mine")
    assert "best: point 0, largest loss 1," in printed(capsys, "results", "mine", "--sort", "loss")
    assert "best: point 5, largest seconds 5," in printed(capsys, "results", "mine", "--sort", "seconds")


def test_a_plain_number_that_a_function_returned_is_a_metric(make_sweep: Any, capsys: Any) -> None:
    made = make_sweep().submitted("0-5", "7")
    for point in range(6):
        made.ended(point, result=10.0 - point)
    assert "best: point 5, smallest result 5" in printed(capsys, "results", "mine")


def test_what_is_no_finite_number_is_never_the_best(make_sweep: Any, capsys: Any) -> None:
    made = make_sweep(lr=[1, 2, 3, 4, 5]).submitted("0-4", "7")
    for point, loss in enumerate((float("nan"), 3.0, float("-inf"), 1.0, float("nan"))):
        made.ended(point, metrics={"loss": loss})
    found = data_of(printed(capsys, "results", "mine", "--json"))
    assert [row["point"] for row in found["rows"]] == [3, 1, 0, 2, 4]
    assert found["best"] == 3


def test_packed_points_have_results_too(make_sweep: Any, capsys: Any) -> None:
    made = make_sweep().submitted("0-5", "7", per_task=3)
    for task in range(2):
        run = made.task(0, task)
        for point in range(task * 3, task * 3 + 3):
            made.packed_end(run, point, metrics={"loss": float(point)})
    found = data_of(printed(capsys, "results", "mine", "--sort", "loss", "--json"))
    assert [row["metrics"]["loss"] for row in found["rows"]] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert found["states"] == {"finished": 6}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sort", "val_los"], "has no metric 'val_los' (did you mean 'val_loss'?); valid: val_loss, step_time"),
        (["--plot", "out.pdf"], "valid: a name that ends in .html or .png"),
        (["--csv", "--json"], "not allowed with"),
        (["--plot", "no/such/folder/out.html"], "no such file or directory"),
    ],
)
def test_bad_words(ended: Any, capsys: Any, words: list[str], said: str) -> None:
    assert said in refused(capsys, "results", "mine", *words)


def test_a_sweep_without_metrics_says_how_to_tell_one(make_sweep: Any, capsys: Any) -> None:
    made = make_sweep().submitted("0-5", "7")
    for point in range(6):
        made.ended(point)
    assert "slurmopt.progress(step, loss=…)" in refused(capsys, "results", "mine", "--sort", "loss")
    assert "no point has reported a metric yet" in printed(capsys, "results", "mine")


def test_a_run_has_no_results(make_sweep: Any, tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "runs" / "alone" / "1"
    run.mkdir(parents=True)
    (run / "events.jsonl").write_text('{"time": 1.0, "event": "created", "name": "alone", "id": "1"}\n')
    assert "alone/1 is a run, not a sweep" in refused(capsys, "results", "alone")


HOSTILE = ['=HYPERLINK("http://x")', "</script><script>alert(1)</script>", "a,b\n\x1b[2J", "@SUM(1)", "+1", "$x^2"]


def test_hostile_values_stay_harmless(make_sweep: Any, tmp_path: Path, capsys: Any) -> None:
    made = make_sweep(**{"name": "<b>mine</b>", "trick": HOSTILE}).submitted("0-5", "7")
    for point in range(6):
        made.ended(point, metrics={"<img src=x onerror=alert(1)>": float(point), "=1+1": 0.0})
    words = ["results", str(made.folder.path), "--sort", "<img src=x onerror=alert(1)>"]
    assert "\x1b" not in printed(capsys, *words)
    rows = list(csv.reader(io.StringIO(printed(capsys, *words, "--csv"))))
    cells = [cell for row in rows for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]
    assert [row[1].lstrip("'") for row in rows[1:]] == HOSTILE
    assert main([*words, "--plot", "out.html"]) == 0
    page = (tmp_path / "out.html").read_text()
    seen: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            seen.append(tag)

    Tags().feed(page)
    assert not {"script", "img", "b", "link", "iframe"} & set(seen)
    assert {"svg", "circle", "table"} <= set(seen)
    assert re.findall(r"(?:src|href|url)\s*[=(]", page.replace("&lt;img src=x", "")) == []


def test_the_picture_asks_no_other_host_for_anything(ended: Any, tmp_path: Path, capsys: Any) -> None:
    assert printed(capsys, "results", "mine", "--plot", "out.html") == ""
    page = (tmp_path / "out.html").read_text()
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert page.count("<svg") == 3  # the best so far, and one for each axis
    assert "explains" in page


def test_a_png_needs_matplotlib_and_says_so(ended: Any, capsys: Any, monkeypatch: Any) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError("No module named 'matplotlib'")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    said = refused(capsys, "results", "mine", "--plot", "out.png")
    assert "needs matplotlib" in said
    assert ".html" in said


def test_a_png_is_one(ended: Any, tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("matplotlib", reason="NOT TESTED: matplotlib is not installed")
    (tmp_path / "other").write_text("mine\n")
    (tmp_path / "out.png").symlink_to("other")  # where others may write, they may have put it there
    assert printed(capsys, "results", "mine", "--plot", "out.png") == ""
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "other").read_text() == "mine\n"


def tried(rows: list[tuple[dict[str, Any], float]], *axes: str) -> list[AxisValues]:
    """Each point with values of its own, which may be those of another."""
    return [AxisValues(axis, [values[axis] for values, _ in rows], range(len(rows))) for axis in axes]


def test_what_explains_a_metric_comes_first_and_chance_explains_nothing() -> None:
    chance = random.Random(0)
    rows = [
        ({"lr": lr, "model": model, "seed": seed}, lr * 10 + (model == "large") + chance.gauss(0, 0.1))
        for lr in (0.1, 0.2, 0.3)
        for model in ("small", "large")
        for seed in range(5)
    ]
    found = effects(tried(rows, "seed", "model", "lr"), [metric for _, metric in rows])
    assert [effect.axis for effect in found] == ["lr", "model", "seed"]
    assert found[0].share > 0.6
    assert found[2].share < 0.1
    assert [(level.label, level.count) for level in found[0].levels] == [("0.1", 10), ("0.2", 10), ("0.3", 10)]
    assert found[0].levels[0].mean == pytest.approx(1.5, abs=0.2)


def test_the_share_is_kelleys() -> None:
    # By hand: squares within the groups 2 over 4 - 2, in all 6 over 4 - 1.
    assert explained([[1.0, 3.0], [4.0, 4.0]]) == pytest.approx(1 - (2 / 2) / (6 / 3))
    assert explained([[1.0], [2.0]]) == 0
    assert explained([[1.0, 1.0], [1.0, 1.0]]) == 0


def test_many_different_numbers_are_looked_at_in_bins() -> None:
    rows = [({"x": value / 100}, abs(value - 50) + 0.0) for value in range(100)]
    (found,) = effects(tried(rows, "x"), [metric for _, metric in rows])
    assert len(found.levels) == 5
    assert min(found.levels, key=lambda level: level.mean).label == "0.4 … 0.59"
    assert found.share > 0.8


def test_a_search_shows_the_values_it_chose_and_what_it_gave_up(make_sweep: Any, capsys: Any) -> None:
    made = make_sweep(search=3, sweep={"metric": "loss"}, lr=[0.1, 0.2]).submitted("0-2", "7", tasks=1)
    run = made.task(0, 0)
    for point, lr in enumerate((0.15, 0.17, 0.11)):
        make_point(made.folder, made.points, point, "7_0", None, {"lr": lr})
        made.packed_end(run, point, metrics={"loss": lr}, pruned=point == 2)
    found = data_of(printed(capsys, "results", "mine", "--json"))
    assert [(row["values"], row["pruned"]) for row in found["rows"]] == [
        ({"lr": 0.15}, False),
        ({"lr": 0.17}, False),
        ({"lr": 0.11}, True),
    ]
    assert found["best"] == 0  # a trial that was given up early had no time to become good
    assert "pruned" in printed(capsys, "results", "mine")


def test_what_is_kept_of_an_ended_point_is_small(make_sweep: Any) -> None:
    count, per_task = 3000, 1000
    made = make_sweep(lr=[0.1], seed=list(range(count))).submitted(f"0-{count - 1}", "7", per_task=per_task)
    for task in range(count // per_task):
        run = made.task(0, task)
        for point in range(task * per_task, (task + 1) * per_task):
            made.packed_end(run, point, metrics={"loss": point + 0.5}, result={"loss": point + 0.25}, seconds=1.5)
    sweep_states(made.folder, metrics=True)  # what is imported does not count
    tracemalloc.start()
    try:
        seen = sweep_states(made.folder, metrics=True)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen.counts() == {"finished": count}
    assert seen.of(17).end["metrics"] == {"loss": 17.25}
    assert kept / count < 150  # bytes; one dict is larger
