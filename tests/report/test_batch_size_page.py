"""The page of a search for a batch size in a real browser."""

from __future__ import annotations

from pathlib import Path

from report.browser import CONTRAST, Browser

from slurmopt.grid.search.batch_size import Trial
from slurmopt.report import batch_size_page


def test_the_page_has_both_curves_and_the_trials(tmp_path: Path, chromium: Browser) -> None:
    gib = 2.0**30
    trials = [
        Trial(size=size, rate=1000 * size / (size + 20), memory=(2 + size / 8) * gib, limit=80 * gib)
        for size in (8, 16, 64, 256)
    ]
    trials.append(Trial(size=1024, error="<img src=x onerror=alert(1)>", too_large=True))
    batch_size_page.write("mine/1", "batch_size", trials, tmp_path / "page.html")
    chromium.show(1100, dark=False)
    chromium.open(tmp_path / "page.html")
    chromium.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    text = str(chromium.value("document.body.innerText"))
    assert "the smallest size within 5% of the best rate" in text
    assert "<img src=x onerror=alert(1)>" in text
    for chart in ("rate", "memory"):
        assert chromium.value(f"document.querySelectorAll('#{chart} svg path').length") >= 4 + 3 * 24
        assert "over batch size" in str(
            chromium.value(f"document.getElementById('{chart}').getAttribute('aria-label')")
        )
    assert chromium.value("document.querySelectorAll('table tbody tr').length") == 5
    assert chromium.value("document.images.length") == 0
    assert chromium.value(CONTRAST) == []


def test_the_page_of_a_search_that_failed_does_not_tell_of_sizes(tmp_path: Path, chromium: Browser) -> None:
    trials = [Trial(size=8, rate=286.0), Trial(size=16, error="ValueError: no such file")]
    batch_size_page.write("mine/1", "batch_size", trials, tmp_path / "page.html")
    chromium.open(tmp_path / "page.html")
    text = str(chromium.value("document.body.innerText"))
    assert "no answer\na trial failed, and not for want of memory" in text
    assert "ValueError: no such file" in text
