"""How a comparison fits a terminal."""

from __future__ import annotations

import pytest

from slurmopt.report.comparison import Comparison, Side, Speed
from slurmopt.report.output.comparison_text import lines
from slurmopt.report.output.terminal import plain
from slurmopt.report.run.run_report import Share

NAME = "llama-3-70b-pretrain/20261124-1{}1010-abcd"


def comparison(count: int) -> Comparison:
    """Of runs with a name of 41 characters, whose long paths differ in the middle."""
    sides = [
        Side(
            NAME.format(at), "finished", "GPU", 46_000.0, [Share("compile and first steps", 1.0, 1.0)],
            Speed(0.621 + at / 100, 0.02, 60), 11_500.0, 1, 120_000, {"loss": 1.0 / (at + 1)},
        )
        for at in range(count)
    ]  # fmt: skip
    paths = [f"/shared/datasets/of-the-group/version-{at}/tokens-of-everything-2026" for at in range(count)]
    keys = {"data.a_group_with_a_long_name.another_group.path": paths, "lr": list(range(count))}
    ratios = [(1.0 + at / 50, 0.05) for at in range(count)]
    return Comparison(sides, keys, [*ratios], ["one more"])


@pytest.mark.parametrize("count", [2, 3, 5, 9])
@pytest.mark.parametrize("width", [80, 95, 110])
def test_no_line_is_longer_than_the_terminal_is_wide(count: int, width: int) -> None:
    shown = plain(lines(comparison(count), width))
    assert max(map(len, shown.split("\n"))) <= width
    for at in range(count):
        assert f"sion-{at}" in shown, "what differs stays"
        assert f"{0.621 + at / 100:.2f}" in shown
        assert f"{at}1010-abcd" in shown
    assert shown.count("no clear difference") == sum(1 for at in range(1, count) if at / 50 <= 0.05)


def test_what_fits_is_not_cut() -> None:
    short = comparison(2)
    for at, side in enumerate(short.sides):
        side.label = f"mine/{at}"
    short.config = {"lr": [0.1, 0.2]}
    shown = plain(lines(short, 80))
    assert "…" not in shown
    assert "mine/0" in shown.split("\n")[1]
    assert "mine/1" in shown.split("\n")[1]
