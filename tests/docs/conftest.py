"""The site of the documentation, built once, and the browser that looks at it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from report.conftest import chromium

__all__ = ["chromium"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    for needed in ("material", "mkdocstrings"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"NOT TESTED: {needed} is not installed (the extra `docs`)")
    folder = tmp_path_factory.mktemp("site")
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder
