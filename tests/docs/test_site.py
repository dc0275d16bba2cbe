"""The built site, in a real browser: what is copied, what fits on a phone, and that nothing comes from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass
class Seen:
    """A page as the browser shows it at one width."""

    page: Path
    width: int
    full_width: int
    too_wide: list[str]
    broken_keys: list[str]
    copied: list[str]
    foreign: list[str]


@pytest.fixture(scope="module")
def seen(site: Path, chromium: Browser) -> list[Seen]:
    """Every page, loaded on a desk and on a phone; on a tablet it is what the desk's window becomes when narrowed."""
    return [
        each for page in pages(site) for each in (*loaded(chromium, page, DESK, TABLET), *loaded(chromium, page, PHONE))
    ]


def loaded(chromium: Browser, page: Path, *widths: int) -> list[Seen]:
    """The page, loaded at the first of the widths."""
    chromium.show(widths[0])
    chromium.open(page)
    chromium.value("new Promise(done => setTimeout(done, 100))")
    return [look(chromium, page, width) for width in widths]


def look(chromium: Browser, page: Path, width: int) -> Seen:
    chromium.show(width)
    shown = (chromium.value(each) for each in ("document.documentElement.scrollWidth", TOO_WIDE, BROKEN_KEYS, COPIED))
    foreign = [url for url in chromium.requests() if not url.startswith(("file:", "data:"))]
    return Seen(page, width, *shown, foreign)


@pytest.mark.slow
@pytest.mark.parametrize("width", [DESK, TABLET, PHONE])
def test_a_copied_console_block_is_its_commands(seen: list[Seen], width: int) -> None:
    commands = 0
    for each in seen:
        if each.width == width:
            assert each.copied == typed_in(each.page), each.page
            commands += len(each.copied)
    assert commands > 60


@pytest.mark.slow
@pytest.mark.parametrize("width", [DESK, TABLET, PHONE])
def test_no_page_is_clipped_and_no_key_is_broken(seen: list[Seen], width: int) -> None:
    for each in seen:
        if each.width == width:
            assert each.full_width <= width, each.page
            assert each.too_wide == [], each.page
            if width != PHONE:
                assert each.broken_keys == [], each.page


@pytest.mark.slow
def test_no_page_asks_another_host_for_anything(seen: list[Seen]) -> None:
    assert [(each.page, each.foreign) for each in seen if each.foreign] == []


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
