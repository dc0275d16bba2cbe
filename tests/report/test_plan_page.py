"""The page of a plan in a real browser, and where its shapes lie in the picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from report.browser import CONTRAST, Browser

from slurmopt.cli import main
from slurmopt.commands.plan.shapes.front_picture import Front, Point, picture
from slurmopt.planning.ranges import Range

EVIL = "<img src=x onerror=alert(1)>"
EXPERIMENT = """# @package _global_
task: {command: [python, train.py]}
launch: {backend: local}
resources: {nodes: 2, gpus_per_node: 8, gpu_type: h100}
plan:
  {model: llama-8b, network: 3200, sequence: 4096, global_batch: 512, tokens: 1e9, strategy: fsdp,
   keys: {micro_batch: train.batch, strategy: train.strategy}}
train: {batch: 1, strategy: fsdp, note: ''}
"""
PRICES = "currency: EUR\nprices:\n- {gpu: H100, per_hour: 2.5, date: 2026-01-01, source: '%s'}\n"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of a plan's page. The source of the prices is hostile."""
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(EXPERIMENT)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "prices.yaml").write_text(PRICES % EVIL)
    monkeypatch.setenv("SLURMOPT_PRICES", str(tmp_path / "prices.yaml"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "page.html"


def plan(*words: str) -> int:
    return main(["plan", "+experiment=mine", "--html", "page.html", *words])


def test_the_page_shows_the_plan(page: Path, chromium: Browser, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(f"train.note='{EVIL}'") == 0
    told = capsys.readouterr()
    assert "take      8 nodes" in told.out, "the answer on the terminal stays"
    assert told.err.splitlines()[-1] == "slurmopt: written: page.html"
    assert page.stat().st_mode & 0o777 == 0o600
    chromium.show(1100, dark=False)
    chromium.open(page)
    text = str(chromium.value("document.body.innerText"))
    for line in told.out.splitlines():
        if line.startswith(("take", "next", "note")):
            assert line[10:].removeprefix("8 nodes: ") in text
    assert "train.batch=2 train.strategy=fsdp" in text
    assert "64 ranks with 16 each do not divide the global batch of 512" in text
    assert chromium.value("document.images.length") == 0
    assert chromium.requests() == [page.as_uri()]
    assert chromium.complaints() == []
    for dark in (False, True):
        chromium.show(1100, dark=dark)
        assert chromium.value(CONTRAST) == []
    chromium.show(380)
    assert chromium.value("document.documentElement.scrollWidth") == 380, "nothing is wider than a phone"


def test_the_picture_has_each_shape_and_says_the_same_in_words(
    page: Path, chromium: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan("--json") == 0
    found: Any = data_of(capsys.readouterr().out)
    chromium.show(1100)
    chromium.open(page)
    labels = chromium.value("[...document.querySelectorAll('.front .label')].map(each => each.textContent)")
    assert labels == ["1 node", "2 nodes", "4 nodes", "8 nodes: take"]
    assert [row["nodes"] for row in found["shapes"]] == [1, 2, 4, 8]
    fronts = chromium.value("document.querySelectorAll('.front .front-point .dot, .front .taken .dot').length")
    assert fronts == sum(row["front"] for row in found["shapes"])
    words = str(chromium.value("document.querySelector('.front svg').getAttribute('aria-label')"))
    assert words.count("Cost in EUR") == 4
    assert "8 nodes, fsdp b2: 17m12s-31m10s" in words
    for row in found["shapes"]:
        low, high = (2.5 * hours for hours in row["gpu_hours"])
        assert f"; Cost in EUR {low:.3g}-{high:.3g}; " in words
    assert "Cost in EUR over time of the training" in str(chromium.value("document.body.innerText"))
    edge = "document.querySelector('.front .edge').getBoundingClientRect()"
    inside = f"""[...document.querySelectorAll('.front .dot, .front .interval')].every(each => {{
        const box = each.getBoundingClientRect(), edge = {edge};
        return box.left >= edge.left && box.right <= edge.right && box.top >= edge.top && box.bottom <= edge.bottom;
    }})"""
    assert chromium.value(inside)


def test_a_command_is_copied(page: Path, chromium: Browser) -> None:
    assert plan() == 0
    chromium.open(page)
    chromium.value(
        "navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve() };"
        "document.querySelector('[data-copies=command]').click()"
    )
    copied = chromium.value("new Promise(done => setTimeout(() => done(window.copied), 20))")
    assert copied == str(chromium.value("document.getElementById('command').textContent"))
    assert copied.startswith("slurmopt launch +experiment=mine resources.nodes=8 ")


def test_without_tokens_a_step_is_drawn_and_without_prices_hours(page: Path, chromium: Browser) -> None:
    (page.parent / "prices.yaml").write_text("currency: EUR\nprices: []\n")
    assert plan() == 0
    assert "GPU-hours over time of the training" in page.read_text()
    assert plan("plan.tokens=null") == 0
    assert "GPU-hours of 1,000 steps over time of a step" in page.read_text()


def test_where_nothing_fits_the_page_says_why(page: Path, chromium: Browser) -> None:
    assert plan("plan.model=llama-405b") == 1
    chromium.open(page)
    text = str(chromium.value("document.body.innerText"))
    assert "Nothing fits\n\non 8 nodes, which come nearest, its peak is" in text
    assert "Shapes that cannot be" in text
    assert chromium.value("document.querySelectorAll('.front').length") == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("page", "plan: --html 'page' is not valid; valid: a name that ends in .html"),
        ("-", "plan: --html '-' is not valid; valid: a name that ends in .html"),
        ("no/page.html", "plan: --html no/page.html: there is no folder no"),
        ("folder.html", "plan: --html folder.html is no regular file; valid: the name of a file"),
    ],
)
def test_a_page_that_cannot_be_written_is_one_line(
    page: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    Path("folder.html").mkdir()
    assert main(["plan", "+experiment=mine", "--html", name]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"slurmopt: error: {message}\n"


def drawn(*points: tuple[int, str, Range, Range]) -> Front:
    found = picture([Point(*each, words="") for each in points], str, str)
    assert found is not None
    return found


def test_places_are_on_logarithmic_scales() -> None:
    """Times of 100, 200 and 400 are evenly apart, the interval is around the point, and dear is above cheap."""
    points = [(n, "front", Range(50 * n, 200 * n), Range(8 / n, 32 / n)) for n in (1, 2, 4)]
    one, two, four = drawn(*points).places
    assert two.x - one.x == pytest.approx(four.x - two.x, abs=0.02)
    assert one.y < two.y < four.y, "percent from the top"
    assert one.ends[0] < one.x < one.ends[2]
    # The scale goes from 50 to 800 over the middle 84 %: one doubling of four is 21 %.
    assert two.x - one.x == pytest.approx(84 / math.log2(16), abs=0.02)
    assert (one.ends[0], four.ends[2]) == (8.0, 92.0)


def test_marks_are_round_and_few() -> None:
    found = drawn((1, "taken", Range(3000, 3000), Range(7, 7)), (2, "front", Range(90000, 90000), Range(70, 70)))
    assert [float(label) for _, label in found.across] == [3600, 7200, 21600, 43200, 86400]
    assert [float(label) for _, label in found.up] == [10, 20, 50]
    alone = drawn((1, "taken", Range(0.0311, 0.0311), Range(7, 7)))
    assert 2 <= len(alone.across) <= 6
    assert alone.places[0].x == pytest.approx(50)


@pytest.mark.parametrize("odd", [Range(0, 1), Range(-1, 1), Range(1, math.inf), Range(math.nan, math.nan)])
def test_what_has_no_place_is_left_out(odd: Range) -> None:
    assert picture([Point(1, "other", odd, Range(1, 2), "")], str, str) is None
    assert len(drawn((1, "other", Range(1, 2), odd), (2, "taken", Range(1, 2), Range(1, 2))).places) == 1
