"""Tests that need a GPU: without one all of them are skipped, for one reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

REASON = "NOT TESTED ON A GPU: torch finds no CUDA device here"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=REASON))
