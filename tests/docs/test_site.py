"""The built site, in a real browser: what is copied, what fits on a phone, and that nothing comes from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from report.browser import Browser

import slurmopt
from slurmopt import checkpoint, errors, training

ROOT = Path(__file__).resolve().parents[2]
PHONE, TABLET, DESK = 390, 800, 1400
COPIED = """(() => {
  const copied = [];
  document.execCommand = () => copied.push(document.activeElement.value);  // what a copy would take
  for (const button of document.querySelectorAll(".language-console .md-code__button[data-md-type=copy]"))
    button.click();
  return copied;
})()"""
BROKEN_KEYS = """[...document.querySelectorAll(".md-content td:first-child code")]
  .filter(code => code.getClientRects()[0]?.height > 1.9 * parseFloat(getComputedStyle(code).fontSize))
  .map(code => code.textContent)"""
TOO_WIDE = """[...document.querySelectorAll(".md-content table, .md-content p, .md-content dl")]
  .filter(part => part.getBoundingClientRect().right > innerWidth)
  .map(part => part.textContent.slice(0, 200))"""


def pages(site: Path) -> Iterator[Path]:
    for source in sorted((ROOT / "docs").glob("*.md")):
        yield site / ("" if source.stem == "index" else source.stem) / "index.html"


def typed_in(page: Path) -> list[str]:
    """The commands of each console block of a page's source: the lines with a prompt and those that continue them."""
    source = ROOT / "docs" / f"{page.parent.name}.md"
    if not source.exists():
        source = ROOT / "docs" / "index.md"
    blocks = re.findall(r"^```console\n(.*?)^```", source.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    commands = (re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE) for block in blocks)
    return ["\n".join(lines) for lines in commands]


@pytest.mark.slow
@pytest.mark.parametrize("width", [DESK, PHONE])
def test_a_copied_console_block_is_its_commands(site: Path, chromium: Browser, width: int) -> None:
    seen = 0
    for page in pages(site):
        chromium.show(width)
        chromium.open(page)
        chromium.value("new Promise(done => setTimeout(done, 100))")
        assert chromium.value(COPIED) == typed_in(page), page
        seen += len(typed_in(page))
    assert seen > 60


@pytest.mark.slow
@pytest.mark.parametrize("width", [DESK, TABLET, PHONE])
def test_no_page_is_clipped_and_no_key_is_broken(site: Path, chromium: Browser, width: int) -> None:
    for page in pages(site):
        chromium.show(width)
        chromium.open(page)
        assert chromium.value("document.documentElement.scrollWidth") <= width, page
        assert chromium.value(TOO_WIDE) == [], page
        if width != PHONE:
            assert chromium.value(BROKEN_KEYS) == [], page


@pytest.mark.slow
def test_no_page_asks_another_host_for_anything(site: Path, chromium: Browser) -> None:
    for page in pages(site):
        chromium.open(page)
        assert [url for url in chromium.requests() if not url.startswith(("file:", "data:"))] == [], page


@pytest.mark.parametrize("dark", [False, True])
def test_the_site_is_light_or_dark_as_the_system_is(site: Path, chromium: Browser, dark: bool) -> None:
    chromium.show(DESK, dark=dark)
    chromium.open(site / "index.html")
    assert chromium.value("document.body.dataset.mdColorScheme") == ("slate" if dark else "default")


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    page = (site / "api" / "index.html").read_text(encoding="utf-8")
    names = [f"slurmopt.{name}" for name in slurmopt.__all__]
    names += [f"{module.__name__}.{name}" for module in (checkpoint, training) for name in module.__all__]
    names += [f"slurmopt.errors.{name}" for name, kind in vars(errors).items() if isinstance(kind, type)]
    assert [name for name in names if f'id="{name}"' not in page] == []
