"""The picture of the board, from rows alone: every width and height, and names that nobody should have."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from rich.cells import cell_len

from slurmopt.board.columns import Line, age, bar
from slurmopt.board.frame import View, frame, key_at, key_line
from slurmopt.board.rows.order import ORDERS, matching, ordered
from slurmopt.board.rows.row import GONE, Row

NOW = 1_790_000_000.0
NASTY = "\x1b]0;title\x07\x1b[2J[red]no[/red][link=file:///etc]x\x9b31m\x08\u202e日本語"


def row(name: str = "mine", state: str = "running", **fields: object) -> Row:
    known = {"id": "20260101-000000-aaaa", "created": NOW - 600, **fields}
    return Row(Path("/runs") / name / str(known["id"]), name, state=state, **known)  # type: ignore[arg-type]


BUSY = row(
    step=450, total=1000, rate=12.3, left=3600.0, metrics={"lr": 1e-4, "loss": 0.5}, curve=(3.0, 2.0, 1.0),
    gpu=(20.0, None, 90.0), job="123", attempt=2, nodes="node[1-8]", elapsed=300.0, detail="no step for 3m",
)  # fmt: skip
ODD = [
    row("a" * 300, "failed", detail="x" * 5000),
    row(NASTY, "running", detail=NASTY, metrics={NASTY: math.nan}, owner="nobody", nodes=NASTY, job=NASTY),
    row("inf", curve=(math.inf, -math.inf, math.nan, 1.0), metrics={"loss": math.inf}, rate=math.inf, gpu=(None,)),
    row("zero", step=0, total=0, left=0.0),
    row("beyond", step=12, total=3, rate=1e30),
    row("日本語" * 30, "pending"),
    row("gone", GONE),
    row("sweep", is_sweep=True, step=3, total=10, rate=2.0),
]


def text(line: Line) -> str:
    return "".join(part for part, _ in line)


@pytest.mark.parametrize("height", [1, 2, 3, 5, 6, 24, 60])
def test_every_line_fits_every_terminal(height: int) -> None:
    for width in (*range(1, 130), 160, 200, 500):
        view = View(width, height, problem="slurmctld does not answer" if width % 2 else "", words="")
        view.take([BUSY, *ODD])
        lines = frame(view, [BUSY, *ODD], NOW)
        assert len(lines) <= height
        for line in lines:
            assert cell_len(text(line)) <= width, (width, text(line))
            assert text(line).isprintable()


def test_80_columns_show_what_matters() -> None:
    view = View(80, 24)
    view.take([BUSY])
    lines = [text(line) for line in frame(view, [BUSY], NOW)]
    assert lines[1].split() == ["NAME", "STATE", "DONE", "LEFT", "AGE", "METRIC", "CURVE", "GPU"]
    assert lines[2].split() == ["mine", "running", "━╸──", "45%", "1h00m", "10m", "loss", "0.5", "█▅▁", "90%"]
    assert lines[-1].split()[:4] == ["?", "help", "enter", "open"]
    assert lines[-1].rstrip().endswith("q quit")


def test_200_columns_show_the_error_before_the_id() -> None:
    failed = row("clip", "failed", detail="RuntimeError: shape '[64, 512]' is invalid")
    view = View(200, 24)
    view.take([BUSY, failed])
    lines = [text(line) for line in frame(view, [BUSY, failed], NOW)]
    assert lines[1].split()[-4:] == ["GPU", "JOB", "NODES", "DETAIL"]
    assert lines[3].rstrip().endswith("RuntimeError: shape '[64, 512]' is invalid")


def test_many_states_fit_into_the_first_line_of_80_columns() -> None:
    rows = [row(state, state) for state in ("running", "pending", "failed", "killed", "cancelled", "finished")]
    view = View(80, 24)
    view.take(rows)
    assert text(frame(view, rows, NOW)[0]).rstrip().endswith("1 cancelled 1 finished")


def test_20_columns_show_name_state_and_keys() -> None:
    view = View(20, 10)
    view.take([BUSY])
    lines = [text(line).rstrip() for line in frame(view, [BUSY], NOW)]
    assert lines[1:3] == ["NAME       STATE", "mine       running"]
    assert lines[-1] == " ? help  q quit"


def test_what_is_done_is_never_full_before_the_end() -> None:
    assert bar(0.999, 10) == ("━" * 9 + "╸", "")
    assert bar(1.0, 10) == ("━" * 10, "")
    assert bar(0.0, 3) == ("", "───")


def test_ages_are_coarse() -> None:
    ages = [age(NOW - seconds, NOW) for seconds in (1, 65, 7000, 86400, 3 * 86400, -50)]
    assert ages == ["<1m", "1m", "2h", "24h", "3d", "<1m"]
    assert age(None, NOW) == ""


@pytest.mark.parametrize("order", ORDERS)
def test_any_order_keeps_all_rows(order: str) -> None:
    rows = [BUSY, *ODD]
    assert sorted(map(id, ordered(rows, order))) == sorted(map(id, rows))
    assert sorted(map(id, ordered(rows, order, backwards=True))) == sorted(map(id, rows))


def test_rows_without_a_value_stay_last_in_both_directions() -> None:
    slow, fast, none = row("slow", rate=1.0), row("fast", rate=9.0), row("none")
    assert [one.name for one in ordered([none, slow, fast], "rate")] == ["fast", "slow", "none"]
    assert [one.name for one in ordered([none, slow, fast], "rate", backwards=True)] == ["slow", "fast", "none"]


def test_the_filter_wants_all_words() -> None:
    rows = [row("llama", "failed", job="77"), row("llama", "running"), row("vit", "failed")]
    assert matching(rows, "LLAMA fail") == rows[:1]
    assert matching(rows, "77") == rows[:1]
    assert matching(rows, "") == rows


def test_the_selected_row_stays_selected_when_others_come() -> None:
    view = View(80, 24)
    view.take([BUSY, row("other")])
    view.move(1)
    selected = view.current
    view.take([BUSY, row("other"), *(row(f"new{at}", created=NOW) for at in range(50))])
    assert view.current == selected
    assert selected in view.shown


def test_keys_can_be_clicked_where_they_stand() -> None:
    start = 0
    for key, spans in key_line(80):
        assert key_at(start, 80) == key
        start += len(text(spans))
    assert key_at(79, 80) is None
