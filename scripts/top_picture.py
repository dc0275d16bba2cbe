"""Makes docs/top.svg and docs/list.svg: `slurmopt top` and `slurmopt list`, on runs as tests/board makes them.

Needs slurmopt in this Python: that of scripts/test will do. With `--look FOLDER` it also writes PNGs of the board, its
other screens and the list there, in several sizes, on dark and light terminals and without colours: with Chromium.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "board")]

from board_runs import Board as Runs  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.style import Style  # noqa: E402
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME  # noqa: E402
from rich.text import Text  # noqa: E402
from sweeps.conftest import MadeSweep  # noqa: E402

from slurmopt.board.app import Board  # noqa: E402
from slurmopt.board.columns import Line  # noqa: E402
from slurmopt.board.frame import View  # noqa: E402
from slurmopt.board.rows.folders import Folders  # noqa: E402
from slurmopt.board.rows.reading import Reading  # noqa: E402
from slurmopt.board.screens.lines import Lines  # noqa: E402
from slurmopt.board.styles import plain_words  # noqa: E402
from slurmopt.runs.all_runs import all_folders  # noqa: E402
from slurmopt.slurm.queue_entry import QueueEntry  # noqa: E402
from slurmopt.sweeps.listing import columns  # noqa: E402
from slurmopt.sweeps.listing.rows import rows  # noqa: E402

DOCS_FOLDER = ROOT / "docs"
BEATS = 24
FONTS = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'


@dataclass(frozen=True)
class Shot:
    """One picture: the size of the terminal, and the keys that are pressed before."""

    name: str
    width: int
    height: int
    keys: Sequence[str] = ()
    colours: bool = True
    light: bool = False


DOCS = Shot("top", 110, 24, ("down", "down"))
LISTED = Shot("list", 110, 24)
SWEEP_TASKS = [
    QueueEntry(f"481525_{task}", state, reason, nodes, None, 60, 3600, 0, nodes, "slurmopt:481525")
    for tasks, state, reason, nodes in (
        (range(16, 20), "RUNNING", "", "node1"),
        (range(20, 24), "PENDING", "Resources", ""),
    )
    for task in tasks
]
"""Those that squeue lists."""
LOOKS = (
    Shot("80-dark", 80, 24),
    Shot("80-light", 80, 24, light=True),
    Shot("80-no-color", 80, 24, ("down",), colours=False),
    Shot("200-dark", 200, 50),
    Shot("200-light", 200, 50, light=True),
    Shot("20-dark", 20, 12),
    Shot("80-details", 80, 24, ("slash", *"clip", "enter", "enter")),
    Shot("80-sweep", 80, 24, ("slash", *"sweep", "enter", "enter"), light=True),
    Shot("80-help", 80, 24, ("question_mark",)),
    Shot("80-cancel", 80, 24, ("down", "c")),
)
LOOKS_OF_LIST = (
    Shot("list-80-dark", 80, 24),
    Shot("list-80-light", 80, 24, light=True),
    Shot("list-200-dark", 200, 24),
    Shot("list-200-light", 200, 24, light=True),
)


def make_runs(base: Path) -> Runs:
    runs = Runs(base)
    sweep = MadeSweep(base, "lr-ablation", "20261124-091500-f00d", {}, lr=[10.0**-at for at in range(24)])
    sweep.submitted("0-23", "481525")
    for point in range(15):
        sweep.ended(point, metrics={"loss": 2 - point / 20})
    sweep.ended(15, "user error", error="ValueError: loss is nan at step 310", log="step 310 loss nan\n")
    for point in range(16, 20):
        sweep.started(point)
    return runs


async def take(shot: Shot, runs: Runs) -> list[Line]:
    """The lines on the screen after the keys."""
    reading = Reading(Folders([runs.base]))
    reading.first(0)
    for at in range(BEATS):
        runs.beat(at)
        runs.answer(*SWEEP_TASKS)
        list(reading.look(frozenset(reading.rows)))
    reading.problem = ""
    app = Board(reading, 3600.0, View(shot.width, shot.height), shot.colours)
    async with app.run_test(size=(shot.width, shot.height)) as pilot:
        for key in shot.keys:
            await pilot.press(key)
            await pilot.pause(0.2)
        await pilot.pause(0.5)
        return app.screen.query_one(Lines).lines


def board(shot: Shot, runs: Runs) -> str:
    """A picture of the board."""
    styled = [
        [(text, Style.parse(plain_words(style, shot.colours) or "none")) for text, style in line]
        for line in asyncio.run(take(shot, runs))
    ]
    return svg(shot, "slurmopt top", [Text.assemble(*line) for line in styled])


def listed(shot: Shot, runs: Runs) -> str:
    """A picture of the list."""
    runs.answer(*SWEEP_TASKS)
    found, _ = rows(all_folders(runs.base))
    text = columns.text(found, shot.width, with_folder=False, coloured=True)
    return svg(shot, "slurmopt list", [Text.from_ansi(line) for line in text.split("\n")])


def svg(shot: Shot, title: str, lines: list[Text]) -> str:
    """The lines as a terminal shows them; nothing in it is loaded from elsewhere."""
    console = Console(
        width=shot.width, file=io.StringIO(), force_terminal=True, color_system="truecolor", record=True,
        legacy_windows=False,
    )  # fmt: skip
    for line in lines:
        console.print(line, no_wrap=True, overflow="crop", crop=True)
    theme = DEFAULT_TERMINAL_THEME if shot.light else SVG_EXPORT_THEME
    text = console.export_svg(title=title, theme=theme, unique_id=shot.name, font_aspect_ratio=0.6)
    text = re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)
    return re.sub(r"\s*<!-- Generated .*? -->", "", text).replace("Fira Code, monospace", FONTS)


def write_png(shot: Shot, text: str, folder: Path) -> None:
    from report.browser import browser

    width, height = (int(float(size)) + 1 for size in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)[0])
    page = folder / f"{shot.name}.html"
    page.write_text(
        f"<meta charset=utf-8><body style='margin:0'>{text.replace('<svg ', f'<svg width={width} ', 1)}",
        encoding="utf-8",
    )
    with browser() as chromium:
        chromium.show(width, height)
        chromium.open(page)
        (folder / f"{shot.name}.png").write_bytes(chromium.picture(width, height))
    page.unlink()


def main() -> None:
    """Makes the runs and takes the pictures."""
    parser = argparse.ArgumentParser(description="Makes docs/top.svg and docs/list.svg.")
    parser.add_argument("--look", type=Path, metavar="FOLDER", help="write PNGs of all screens there too")
    look = parser.parse_args().look
    with tempfile.TemporaryDirectory(prefix="slurmopt-top-") as name:
        os.environ.update(XDG_CACHE_HOME=f"{name}/cache", XDG_STATE_HOME=f"{name}/state")
        runs = make_runs(Path(name) / "runs")
        for shot, draw in ((DOCS, board), (LISTED, listed)):
            picture = DOCS_FOLDER / f"{shot.name}.svg"
            picture.write_text(draw(shot, runs), encoding="utf-8")
            print(f"{picture}: {picture.stat().st_size >> 10} KiB")
        if look is not None:
            look.mkdir(parents=True, exist_ok=True)
            for shot, draw in (*((one, board) for one in (DOCS, *LOOKS)), *((one, listed) for one in LOOKS_OF_LIST)):
                write_png(shot, draw(shot, runs), look)


if __name__ == "__main__":
    main()
