"""The man pages: each command has one, it is what the parser says, and it renders without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from slurmopt.cli import main
from slurmopt.commands import COMMANDS
from slurmopt.commands.parsers import parser_of, shown_options, subcommands

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "man").glob("*.1"))
needs_mandoc = pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
needs_man = pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")


def rendered(page: Path) -> str:
    shown = subprocess.run(
        ["mandoc", "-T", "utf8", "-O", "width=200", page], capture_output=True, text=True, check=True
    )
    return re.sub(".\b", "", shown.stdout)


def test_each_command_has_a_page_and_no_page_is_left_over() -> None:
    below = {f"{name}-{sub}" for name, (module, _) in COMMANDS.items() for sub in subcommands(module)}
    assert {page.stem for page in PAGES} == {"slurmopt", *(f"slurmopt-{name}" for name in {*COMMANDS, *below})}


@needs_mandoc
def test_all_pages_render_without_a_warning() -> None:
    linted = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *PAGES], capture_output=True, text=True)
    assert (linted.returncode, linted.stdout) == (0, "")


@needs_mandoc
@pytest.mark.parametrize("name", ["logs", "retry", "export"])
def test_a_page_has_every_option_with_its_help(name: str) -> None:
    parser = parser_of(COMMANDS[name][0])
    assert parser is not None
    shown = rendered(ROOT / "man" / f"slurmopt-{name}.1")
    assert f"slurmopt-{name} - {COMMANDS[name][1]}" in shown
    for action in shown_options(parser):
        for option in action.option_strings:
            assert re.search(rf"^ +(-\w, )?{option}\b", shown, re.MULTILINE), option


@needs_man
def test_man_finds_a_page_beside_the_programs_of_an_environment(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "share" / "man").mkdir(parents=True)
    (tmp_path / "share" / "man" / "man1").symlink_to(ROOT / "man")
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "MANPAGER": "cat"}
    where = subprocess.run(["man", "-w", "slurmopt-checkpoint-list"], env=env, capture_output=True, text=True)
    assert where.stdout.strip().endswith("man1/slurmopt-checkpoint-list.1"), where.stderr
    shown = subprocess.run(["man", "--warnings", "slurmopt-logs"], env=env, capture_output=True, text=True)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "--errors" in shown.stdout


@pytest.mark.parametrize("words", [["logs"], ["checkpoint", "list"]])
def test_help_of_a_command_is_its_own(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    own = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["help", *words])
    assert capsys.readouterr().out == own
    assert f"usage: slurmopt {' '.join(words)}" in own


def test_help_of_no_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "stauts"]) == 2
    assert "no command 'stauts' (did you mean 'status'?)" in capsys.readouterr().err
