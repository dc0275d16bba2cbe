"""The browser of the tests of pages, and sweeps made by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from report.browser import PROGRAM, Browser, browser
from sweeps.conftest import make_sweep

__all__ = ["make_sweep"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A real headless Chromium. It ends with its module: a page that moves takes CPU time from all later tests."""
    if PROGRAM is None:
        pytest.skip("no Chromium here: apt-get install chromium-headless-shell")
    with browser() as started:
        yield started
