"""A board on real run folders, driven as a user drives it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import board_runs
import pytest
from textual.pilot import Pilot

from slurmopt.board.app import Board
from slurmopt.board.frame import View
from slurmopt.board.rows.folders import Folders
from slurmopt.board.rows.reading import Reading
from slurmopt.board.screens.lines import Lines

PATIENCE = 20.0


class Driven:
    """A board under a test."""

    def __init__(self, pilot: Pilot[int], app: Board) -> None:
        self.pilot, self.app = pilot, app

    @property
    def lines(self) -> list[str]:
        """What is on the screen."""
        shown = self.app.screen.query_one(Lines).lines
        return ["".join(text for text, _ in line).rstrip() for line in shown]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    async def press(self, *keys: str) -> Driven:
        await self.pilot.press(*keys)
        await self.pilot.pause()
        return self

    async def until(self, says: str | Callable[[Driven], bool]) -> Driven:
        """Waits until the screen has the text, or the condition holds."""
        deadline = time.monotonic() + PATIENCE
        holds = (lambda board: says in board.text) if isinstance(says, str) else says
        while not holds(self):
            assert time.monotonic() < deadline, f"never {says!r}:\n{self.text}"
            await self.pilot.pause(0.02)
        return self

    def row(self, name: str) -> str:
        """The line of a run."""
        return next(line for line in self.lines if line.strip(" ▸").startswith(name))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> board_runs.Board:
    """The runs of a busy user in runs/ of the folder that the test stands in."""
    monkeypatch.chdir(tmp_path)
    made = board_runs.Board(tmp_path / "runs")
    made.beat(0)
    return made


@pytest.fixture
def drive(tmp_path: Path) -> Callable[..., None]:
    """Drives a board on runs/ by an async function, until that has ended."""

    def run(steps: Callable[[Driven], Awaitable[Any]], width: int = 100, height: int = 30, every: float = 0.1) -> Board:
        reading = Reading(Folders([tmp_path / "runs"]))
        reading.first(height)
        app = Board(reading, every, View(width, height), colours=True)

        async def go() -> None:
            async with app.run_test(size=(width, height)) as pilot:
                await steps(Driven(pilot, app))

        asyncio.run(go())
        return app

    return run  # type: ignore[return-value]
