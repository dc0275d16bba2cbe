"""`slurmopt top` on a real terminal: it draws, leaves with the right status, and leaves the terminal as it was."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import board_runs
import pytest
from top_session import ALTERNATE, LISTENS, Session


@pytest.fixture
def top(runs: board_runs.Board) -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def start(*words: str, **options: object) -> Session:
        sessions.append(Session(*words, **options))  # type: ignore[arg-type]
        return sessions[-1]

    yield start
    for session in sessions:
        session.close()


@pytest.mark.parametrize(
    ("leave", "status"),
    [
        (lambda session: session.press(b"q"), 0),
        (lambda session: session.press(b"\x03"), 130),
        (lambda session: session.kill(signal.SIGTERM), 143),
        (lambda session: session.kill(signal.SIGINT), 130),
        (lambda session: session.kill(signal.SIGHUP), 143),
    ],
    ids=["q", "ctrl-c", "kill", "kill-int", "kill-hup"],
)
def test_it_leaves_the_terminal_as_it_was(
    top: Callable[..., Session], leave: Callable[[Session], object], status: int
) -> None:
    session = top().until(LISTENS).until(b"llama-8b-pretrain")
    leave(session)
    assert session.end() == status
    session.assert_left()


@pytest.mark.parametrize(("leave", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 143)])
def test_also_before_textual_is_there(top: Callable[..., Session], leave: int, status: int) -> None:
    session = top().until(b"whisper-medium-de").kill(leave)
    assert session.end() == status
    session.assert_left()


def test_keys_that_are_pressed_early_count(top: Callable[..., Session]) -> None:
    session = top().until(b"whisper-medium-de").press(b"?")
    session.until(b"the log of rank 0, followed").press(b"q")
    assert session.end() == 0


def test_a_log_and_a_resize(top: Callable[..., Session], runs: board_runs.Board) -> None:
    runs.vit.folder.rank_log(0, 0).write_text("epoch 7\n")
    session = top(size=(10, 20)).until(LISTENS)
    session.until(b"vit-l16")
    session.resize(24, 100)
    session.kill(signal.SIGWINCH).until(b"enter").press(b"l").until(b"epoch 7").press(b"q")
    assert session.end() == 0
    session.assert_left()


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(top: Callable[..., Session]) -> None:
    session = top().until(LISTENS).until(b"finished").press(b"\x1a")
    session.until(session.is_stopped).assert_left()
    session.output = b""
    session.kill(signal.SIGCONT).until(ALTERNATE).until(b"finished").press(b"q")
    assert session.end() == 0


def test_it_ends_after_a_sigcont_that_nobody_asked_for(top: Callable[..., Session]) -> None:
    session = top().until(LISTENS).until(b"finished")
    session.output = b""
    session.kill(signal.SIGCONT).until(ALTERNATE).until(b"finished").press(b"q")
    assert session.end() == 0
    session.assert_left()


def test_no_color_means_none(top: Callable[..., Session]) -> None:
    session = top(NO_COLOR="1").until(LISTENS).until(b"finished").press(b"j?").until(b"followed").press(b"q")
    assert session.end() == 0
    codes = {code for found in re.findall(rb"\x1b\[([0-9;]*)m", session.output) for code in found.split(b";")}
    assert codes <= {b"", b"0", b"1", b"2", b"4", b"7", b"39", b"49"}  # these two are the terminal's own


@pytest.mark.parametrize("terminal", ["dumb", ""])
def test_a_terminal_that_cannot_draw(top: Callable[..., Session], terminal: str) -> None:
    session = top(TERM=terminal)
    assert session.end() == 2
    assert session.output.count(b"\n") == 1
    assert b"slurmopt top cannot draw on the terminal TERM=" in session.output
    assert b"slurmopt list" in session.output


def _fails(*words: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "slurmopt", "top", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    return line


def test_no_terminal() -> None:
    assert "slurmopt top needs a terminal, and standard input is none; slurmopt list" in _fails()


@pytest.mark.parametrize("value", ["0", "-1", "nan", "fast", "1e9"])
def test_odd_refresh(value: str) -> None:
    assert f"--refresh: {value!r} is" in _fails(f"--refresh={value}")


def test_a_folder_that_is_a_file(top: Callable[..., Session], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    session = top("--folder", "file")
    assert session.end() == 2
    assert b"--folder 'file' is a file" in session.output


def test_other_commands_do_not_import_it() -> None:
    code = (
        "import sys\n"
        "from slurmopt.cli import main\n"
        "main(['list']); main(['--help']); main(['status', '--all'])\n"
        "print([name for name in sys.modules if name.startswith(('textual', 'slurmopt.board'))], file=sys.stderr)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr.splitlines()[-1] == "[]"
