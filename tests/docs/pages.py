"""The pages of the documentation as a reader uses them: a project made of a page's blocks, and the commands in it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from json_answer import data_of

from slurmopt.commands import COMMANDS

DOCS = Path(__file__).resolve().parents[2] / "docs"
FILES = re.compile(
    r"`(?P<name>[\w/.-]+\.(?:py|yaml))`[^`]*?\n\n```(?P<language>python|yaml)\n(?P<text>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
DEADLINE = 180


@dataclass(frozen=True)
class Page:
    """A page, and the folder in which its reader works."""

    name: str
    folder: Path

    @property
    def source(self) -> str:
        """Its Markdown."""
        return (DOCS / f"{self.name}.md").read_text(encoding="utf-8")

    def paste(self) -> list[str]:
        """Writes the files that the page names right before a block, and returns their names."""
        for found in FILES.finditer(self.source):
            path = self.folder / found["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(found["text"])
        return [found["name"] for found in FILES.finditer(self.source)]

    def typed(self) -> list[str]:
        """The commands of its consoles, in their order, without comments."""
        consoles = "".join(re.findall(r"^```console\n(.*?)^```", self.source, re.DOTALL | re.MULTILINE))
        lines = re.findall(r"^\$ ((?:.*\\\n)*.*)$", consoles, re.MULTILINE)
        return [shlex.join(shlex.split(line.replace("\\\n", " "), comments=True)) for line in lines]

    def run(self, command: str, *more: str) -> subprocess.CompletedProcess[str]:
        """Runs a `slurmopt …` of the page in its folder, with further options after the name of the command."""
        program, name, *words = shlex.split(command)
        assert program == "slurmopt"
        argv = [sys.executable, "-m", "slurmopt", name, *more, *words]
        python = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # `python` is the one of the test
        environ = {**os.environ, "PATH": python, "USER": "ada"}
        return subprocess.run(
            argv,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            env=environ,
            stdin=subprocess.DEVNULL,
        )

    def ends_well(self, command: str, *more: str) -> str:
        """The output of a command that must have exit status 0."""
        ended = self.run(command, *more)
        assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    def result(self, command: str, *more: str) -> Any:
        """What the run of a launch on this machine returned; `result.json` as a whole."""
        folder = data_of(self.ends_well(command, "--json", *more))["run"]
        return json.loads((Path(folder) / "result.json").read_text())


def is_launch(command: str) -> bool:
    """Whether a command makes a run."""
    return command.startswith(("slurmopt run ", "slurmopt launch "))


def parses(command: str) -> bool:
    """Whether the parser of a command accepts what is typed."""
    _, name, *words = shlex.split(command.partition(" '&&' ")[0])
    parser = import_module(COMMANDS[name][0]).parser()
    parse = parser.parse_intermixed_args if name == "retry" else parser.parse_args
    parse(words)
    return True
