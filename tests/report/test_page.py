"""The page of a report in a real browser: what is on it, in light and dark, on a phone, on paper, by keyboard."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from report.browser import CONTRAST, Browser
from report.sample_reports import report

from slurmopt.ledger.findings.finding import Finding
from slurmopt.report.output import page
from slurmopt.report.rollup import Group, Member, RollUp
from slurmopt.report.run.run_report import RunReport, Share


def opened(browser: Browser, folder: Path, of: RunReport | RollUp, width: int = 1100, dark: bool = False) -> str:
    """Writes the page and opens it; returns its text."""
    path = folder / "report.html"
    path.write_text(page.page_of(of), encoding="utf-8")
    browser.show(width, dark=dark)
    browser.open(path)
    return str(browser.value("document.body.innerText"))


def test_what_is_on_the_page(chromium: Browser, tmp_path: Path) -> None:
    text = opened(chromium, tmp_path, report())
    for words in (
        "llama-7b/20251113-021320-4f1c", "finished", "3,919.0", "64.3 %", "$9,798", "waiting for input", "702.4",
        "the GPUs wait for the data loader 18 % of the time", "+data.num_workers=24", "node failure", "preemption",
        "node1", "GPU activity 61 % (median 84 %)", "not judged: leak", "120,000 of 120,000",
    ):  # fmt: skip
        assert words in text, words
    assert chromium.value("document.title") == "llama-7b/20251113-021320-4f1c: finished"


def test_the_page_asks_for_nothing_and_complains_of_nothing(chromium: Browser, tmp_path: Path) -> None:
    opened(chromium, tmp_path, report())
    assert chromium.complaints() == []
    assert chromium.requests() == [(tmp_path / "report.html").as_uri()]


def test_the_ledger_is_a_whole(chromium: Browser, tmp_path: Path) -> None:
    """The pieces of the picture fill it, each as wide as its share, and the shares in the table sum to 100 %."""
    opened(chromium, tmp_path, report())
    widths = chromium.value("[...document.querySelectorAll('.ledger i')].map(i => i.getBoundingClientRect().width)")
    whole = chromium.value("document.querySelector('.ledger').getBoundingClientRect().width")
    assert sum(widths) == pytest.approx(whole, abs=1)
    assert widths[0] / whole == pytest.approx(0.643, abs=0.02)
    cells = chromium.value(
        "[...document.querySelectorAll('#ledger ~ table tbody tr')].map(row => row.cells[2].innerText)"
    )
    assert sum(float(cell.rstrip(" %").lstrip("<")) for cell in cells) == pytest.approx(100, abs=0.5)


def test_dark_and_light(chromium: Browser, tmp_path: Path) -> None:
    brightness = "getComputedStyle(document.body).{}.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
    ink, paper = brightness.format("color"), brightness.format("backgroundColor")
    opened(chromium, tmp_path, report())
    assert chromium.value(paper) > 700 > 200 > chromium.value(ink)
    opened(chromium, tmp_path, report(), dark=True)
    assert chromium.value(paper) < 150 < 600 < chromium.value(ink)


@pytest.mark.parametrize("width", [390, 768, 1400])
def test_nothing_is_cut_off_at_the_side(chromium: Browser, tmp_path: Path, width: int) -> None:
    opened(chromium, tmp_path, report(nodes=40), width=width)
    assert chromium.value("document.documentElement.scrollWidth") <= width


def test_text_has_enough_contrast(chromium: Browser, tmp_path: Path) -> None:
    """WCAG AA: 4.5 to 1 for text, in light and dark."""
    for dark in (False, True):
        opened(chromium, tmp_path, report(), dark=dark)
        assert chromium.value(CONTRAST) == []


def test_the_cursor_moves_by_keyboard_and_tells_its_values(chromium: Browser, tmp_path: Path) -> None:
    opened(chromium, tmp_path, report())
    chromium.value("document.querySelector('.curves').focus()")
    chromium.press("Home")
    chromium.press("ArrowRight")
    told = chromium.value("document.querySelector('.curves').getAttribute('aria-valuetext')")
    assert re.search(r"Step rate 0\.6\d+ steps/s, GPU activity [78]\d\.\d %, GPU memory 61\.\d GiB", told)
    legends = chromium.value("[...document.querySelectorAll('.legend b')].map(b => b.textContent)")
    assert all(legends)
    before = chromium.value("getComputedStyle(document.querySelector('.curves')).getPropertyValue('--x')")
    chromium.press("End")
    after = chromium.value("getComputedStyle(document.querySelector('.curves')).getPropertyValue('--x')")
    assert float(before) < 0.01 < 0.99 < float(after)


def test_a_screen_reader_gets_names_and_tables(chromium: Browser, tmp_path: Path) -> None:
    opened(chromium, tmp_path, report())
    nodes = chromium.call("Accessibility.getFullAXTree")["nodes"]
    roles = {
        (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
    }
    names = {name for role, name in roles if role == "heading"}
    assert {"Findings", "Over time"} <= names
    assert any(role in ("image", "img") and "compute 64.3 %" in name for role, name in roles)
    assert any(role == "slider" and name for role, name in roles)
    assert not [role for role, name in roles if role in ("region", "slider", "image") and not name]
    tables = chromium.value("document.querySelectorAll('details table tbody tr').length")
    assert tables > 4 * 10, "the curves are there as numbers too"


def test_it_prints(chromium: Browser, tmp_path: Path) -> None:
    opened(chromium, tmp_path, report(), dark=True)
    pdf = chromium.pdf()
    assert pdf.startswith(b"%PDF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 6
    chromium.show(800, dark=True, media="print")
    ground = chromium.value("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    ink = chromium.value("getComputedStyle(document.querySelector('h1')).color.match(/\\d+/g).map(Number)")
    assert sum(ink) < 250, "dark ink on paper, whatever the screen's colours are"


EVIL = "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>\"'\x1b[31m"


def test_hostile_words_stay_words(chromium: Browser, tmp_path: Path) -> None:
    of = report()
    of.label = of.experiment = of.folder = of.device = of.detail = EVIL
    of.notes, of.helped = [EVIL], [EVIL]
    of.findings = [Finding("x", EVIL, "certain", (EVIL,), 1.0, EVIL)]
    of.attempts = [replace(row, cause=EVIL, error=EVIL, job=EVIL, nodes=EVIL) for row in of.attempts]
    of.node_rows = [replace(row, node=EVIL, remark=EVIL) for row in of.node_rows]
    of.panels = [
        replace(panel, title=EVIL, unit=EVIL, lines=tuple(replace(line, label=EVIL) for line in panel.lines))
        for panel in of.panels
    ]
    text = opened(chromium, tmp_path, of)
    assert "owned" not in chromium.value("document.title").split("</script>")[0]
    assert chromium.value("document.images.length") == 0
    assert chromium.value("document.scripts.length") == 2
    assert chromium.complaints() == []
    assert text.count("onerror") > 10
    chromium.value("document.querySelector('.curves').focus()")
    chromium.press("Home")
    assert chromium.value("document.images.length") == 0


def test_a_script_that_got_into_the_page_would_not_run(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page.page_of(report()).replace("<main>", "<main><script>document.title = 'owned'</script>"))
    chromium.open(path)
    assert chromium.value("document.title") != "owned"


def test_a_large_run_stays_below_one_and_a_half_megabytes() -> None:
    of = report(nodes=1000)
    of.attempts = of.attempts * 100
    assert len(page.page_of(of).encode()) < 1_500_000


def test_a_run_without_anything_has_a_page(chromium: Browser, tmp_path: Path) -> None:
    text = opened(chromium, tmp_path, RunReport("new/1", "pending", detail="waits for resources"))
    assert "waits for resources" in text
    assert chromium.complaints() == []


def test_the_page_of_many_runs(chromium: Browser, tmp_path: Path) -> None:
    rollup = RollUp(
        "your runs in runs", 2.0e9, runs=3, states={"finished": 2, "failed": 1}, device_seconds=7200.0,
        shares=[Share("compute", 5400.0, 0.75), Share("lost", 1800.0, 0.25)], completion_rate=2 / 3,
        groups=[Group("llama", 3, 2, 7200.0, 0.75, 12.5)],
        members=[Member("llama/1", "llama", "finished", 1.9e9, "GPU", 7200.0, 0.75, 2, 12.5)],
    )  # fmt: skip
    text = opened(chromium, tmp_path, rollup, width=390)
    for words in ("your runs in runs", "66.7 %", "Where 2.0 GPU-hours went", "llama/1", "75.0 %"):
        assert words in text, words
    assert chromium.value("document.documentElement.scrollWidth") <= 390
    assert chromium.complaints() == []
