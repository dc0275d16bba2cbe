"""Checks at launch whether `task.command` and `task.python` can start, and resolves `task.per=auto`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from slurmopt.config.check import did_you_mean
from slurmopt.config.schema import Settings
from slurmopt.config.task import Task
from slurmopt.config.task_command import launchers
from slurmopt.config.task_command.words import command_word
from slurmopt.errors import ConfigError

KEY = "task.command"
PYTHON_KEY = "task.python"
_INTERPRETERS = re.compile(r"(?:python|pypy)[\d.]*|(?:ba|da|z|k)?sh|torchrun|accelerate|deepspeed|srun|uv|env")
_FILE = re.compile(r"[^=]*\.(?:py|sh)$")
_OPERATORS = ("|", "||", "&&", ">", ">>", "<", "2>", "2>&1", "&>", "&")
_MOVES = re.compile(r"\b(?:cd|pushd)\b")


def with_per(settings: Settings, workdir: Path) -> Settings:
    """Returns `settings` with `task.per=auto` resolved. Raises ConfigError for a command that runs once per job in a
    container."""
    task, container = settings.task, settings.environment.container.image is not None
    if task.per == "auto" and task.command is not None:
        starter = launcher(settings, workdir)
        settings = replace(settings, task=replace(task, per=starter.per if starter else "rank"))
    if settings.task.per == "job" and container:
        raise ConfigError(
            "once per job a command runs beside Slurm's own commands, outside of environment.container; either leave "
            "srun out, and each rank runs the command in the container, or give your srun its own --container-image",
            "task.per" if task.per == "job" else KEY,
        )
    return settings


def launcher(settings: Settings, workdir: Path) -> launchers.Launcher | None:
    """Returns the launcher that starts the ranks; None if slurmopt starts them."""
    command = settings.task.command
    if command is None:
        return None
    in_container = settings.environment.container.image is not None
    return launchers.of_words(command) if in_container else launchers.of_command(command, workdir)


def check_command(settings: Settings, workdir: Path) -> None:
    """Raises ConfigError if the program or script of the command does not exist or cannot be run.

    Nothing is checked in a container or after a `cd` in environment.setup, nor a name that contains an interpolation.
    """
    environment = settings.environment
    if environment.container.image is not None or any(_MOVES.search(line) for line in environment.setup):
        return
    words = [command_word(word) for word in settings.task.command]
    _refuse_shell_operators(words)
    untouched = not environment.modules and not environment.setup and "PATH" not in environment.variables
    script = _script(words)
    if script is not None and not _is_there(workdir / script):
        raise ConfigError(f"there is no {script!r} in {workdir}{_similar(workdir / script)}", KEY)
    if script is not None and not os.access(workdir / script, os.R_OK):
        raise ConfigError(f"you may not read {str(workdir / script)!r}; chmod u+r it, or ask its owner", KEY)
    _check_program(words, workdir, path_is_the_jobs=untouched)


def _refuse_shell_operators(words: Sequence[str]) -> None:
    """Raises ConfigError for a command that only a shell can run, which slurmopt starts only where it is named."""
    operator = next((word for word in words[1:] if word in _OPERATORS), None)
    if operator is not None:
        shell = shlex.join(
            ["bash", "-c", " ".join(word if word in _OPERATORS else shlex.quote(word) for word in words)]
        )
        raise ConfigError(f"{operator!r} is an operator of a shell, and no shell runs the command; write: {shell}", KEY)


def _similar(script: Path) -> str:
    """' (did you mean X?)' if a file beside the missing one has a similar name."""
    try:
        names = [path.name for path in script.parent.iterdir() if path.suffix == script.suffix]
    except OSError:
        return ""
    return did_you_mean(script.name, names)


def check_python(settings: Settings, workdir: Path) -> None:
    """Raises ConfigError if `task.python` exists but cannot be run, or if it is relative and does not exist. An
    absolute path that does not exist may exist on the compute nodes. In a container, nothing is checked."""
    python = settings.task.python or ""
    if "/" not in python or "${" in python or settings.environment.container.image is not None:
        return
    path = workdir / python
    try:
        facts = path.stat()
    except PermissionError:
        raise ConfigError(
            f"you may not reach {str(path)!r}; ask the owner of the folders above it", PYTHON_KEY
        ) from None
    except (OSError, ValueError):
        is_made_there = bool(settings.environment.setup or settings.environment.modules)
        if PurePath(python).is_absolute() or is_made_there or os.path.lexists(path):  # or only on the nodes
            return
        raise ConfigError(f"there is no {python!r} in {workdir}", PYTHON_KEY) from None
    if stat.S_ISDIR(facts.st_mode):
        raise ConfigError(f"{str(path)!r} is a folder; name the Python in it", PYTHON_KEY)
    if not os.access(path, os.X_OK):
        raise ConfigError(f"you may not run {str(path)!r}; chmod u+x it, or ask its owner", PYTHON_KEY)


def _check_program(words: Sequence[str], workdir: Path, path_is_the_jobs: bool) -> None:
    program = words[0]
    if "${" in program or not program:
        return
    if "/" in program:
        if not PurePath(program).is_absolute():  # an absolute one may exist only on the compute nodes
            _check_file(words, workdir)
        return
    if shutil.which(program) is not None:
        return
    if _is_there(workdir / program):
        raise ConfigError(
            f"{program!r} is a file in {workdir}, and no program on PATH; write {meant(words, workdir)}", KEY
        )
    if path_is_the_jobs:
        raise ConfigError(f"there is no program {program!r} on PATH", KEY)


def _check_file(words: Sequence[str], workdir: Path) -> None:
    program = workdir / words[0]
    if not _is_there(program):
        raise ConfigError(f"there is no {words[0]!r} in {workdir}", KEY)
    if not program.is_dir() and not os.access(program, os.X_OK):
        raise ConfigError(f"{words[0]!r} is not executable; chmod +x it, or write {meant(words, workdir)}", KEY)


def meant(words: Sequence[str], workdir: Path) -> str:
    """Returns a suggested override of `task.command`, quoted for a shell, for words that lack an interpreter or a
    `./`."""
    return shlex.quote(f"{KEY}={shlex.join(runnable(words, workdir))}")


def runnable(words: Sequence[str], workdir: Path) -> list[str]:
    """Returns the words with the interpreter or the `./` that they lack."""
    program = words[0]
    if program.endswith(".py"):
        return ["python", *words]
    if program.endswith(".sh"):
        return ["bash", *words]
    if "/" not in program and _is_there(workdir / program):
        return [f"./{program}", *words[1:]]
    return list(words)


def _script(words: Sequence[str]) -> str | None:
    """Returns the relative path of the script that an interpreter or a launcher runs; None if none is found."""
    if not _INTERPRETERS.fullmatch(PurePath(words[0]).name):
        return None
    for word in words[1:]:
        if word in ("-m", "-C", "--module", "--directory") or word.startswith(("--chdir", "-D")):
            return None
        if re.fullmatch(r"-[a-zA-Z]*c", word) or any(char.isspace() for char in word):  # the script itself
            return None
        if _FILE.fullmatch(word) and not word.startswith("-"):
            return None if "${" in word or PurePath(word).is_absolute() else word
    return None


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or below a folder that is closed
        return False


def looks_like_a_command(words: Sequence[str], workdir: Path) -> bool:
    """Whether `words`, which are not overrides, name a script, a file or a program."""
    program = words[0]
    is_file = _FILE.fullmatch(program) or "/" in program or _is_there(workdir / program)
    return bool(is_file or shutil.which(program))


def check_task(task: Task) -> None:
    """Raises ConfigError if neither `task._target_` nor `task.command` is set."""
    if task._target_ is None and task.command is None:
        raise ConfigError(
            "nothing to run; set task._target_=package.module.function or task.command, "
            "or pick an experiment that does: +experiment=quickstart",
            "task",
        )
