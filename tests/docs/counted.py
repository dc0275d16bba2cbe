"""scripts/ten_tasks.py as a module, and what the page has for one task and tool."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "ten_tasks.py"
PAGE = ROOT / "docs" / "ten-tasks.md"


def counter() -> Any:
    """The module; a test without a checkout is skipped."""
    if not SCRIPT.exists():
        pytest.skip(f"NOT TESTED: {SCRIPT} is not there")
    spec = importlib.util.spec_from_file_location("ten_tasks", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ten_tasks"] = module
    spec.loader.exec_module(module)
    return module


def typed(task: int, tool: str) -> str:
    """What the page has for a task, from 1, and a tool."""
    tasks = list(counter().tasks(PAGE.read_text(encoding="utf-8")))
    return str(tasks[task - 1][1][tool].typed)
