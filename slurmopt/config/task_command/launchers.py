"""Detects launchers in a command: programs that start the ranks themselves. Such a command runs once per node or per
job. Only `of_command` does I/O: it reads the shell script that a command names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

NODE, JOB = "node", "job"
_PROGRAMS: Mapping[str, str] = {
    "torchrun": NODE,
    "torchrun-hpc": JOB,
    "accelerate": NODE,
    "accelerate-launch": NODE,
    "deepspeed": NODE,
    "srun": JOB,
    "mpirun": JOB,
    "mpiexec": JOB,
    "horovodrun": JOB,
}
"""How often each program runs: once per node or once per job."""
_MODULES: Mapping[str, str] = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}
"""The program for each Python module that is run with `python -m`."""
_WRAPPERS = re.compile(
    r"env|exec|time|nice|stdbuf|numactl|taskset|nsys|ncu|uv|poetry|pixi|conda|mamba|micromamba|apptainer|singularity"
)
"""Programs that run another program, which follows their own options."""
_NAMES = {
    "conda|mamba|micromamba": "-n|--name|-p|--prefix|-e|--env|-r|--root-prefix|--cwd",
    "uv": "--with|--with-editable|--extra|--no-extra|--group|--only-group|--no-group|--package|--project|--directory|-p"
    "|--python",
    "poetry": "-P|--project|-C|--directory",
    "pixi": "-e|--environment|--manifest-path",
    "env": "-u|--unset|-C|--chdir",
    "exec": "-a",
    "time|nsys|ncu": "-o|--output|--session-new|--session",
}
"""For each wrapper, the options that take the next word as their value: an environment, a package, a file."""
_CONTAINERS = ("apptainer", "singularity")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*|uv")
_BEFORE_SCRIPT = ("-m", "--module", "--no_python", "--no-python", "--")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_SCRIPT = re.compile(r"\.(?:py|sh|bash|sbatch|slurm)$")
_LARGEST_SCRIPT = 1 << 20
_STARTS = re.compile(
    r"(?:^|[;&|({]|\b(?:exec|time|do|then|else|env)\s)\s*(?:\w+=\S*\s+)*(?:\S*/)?(?P<words>"
    r"(?:torchrun|deepspeed|srun|mpirun|mpiexec|horovodrun)(?=\s|$)|accelerate\s+launch\b|"
    r"python[\d.]*\s+(?:-\S+\s+)*-m\s+(?:torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch)\b)",
    re.MULTILINE,
)
"""Matches a launcher in a shell script at a position where a command may start."""


@dataclass(frozen=True)
class Launcher:
    """A program that starts ranks."""

    name: str
    at: int = 0
    """The index of the word that precedes its own options."""
    script: str | None = None
    """The shell script that calls it; None if the command calls it directly."""
    per: str = NODE
    """`node` or `job`: how often it runs."""


def of_words(words: Sequence[Any]) -> Launcher | None:
    """Returns the launcher in a command; None if there is none. Words after the script that is started are ignored."""
    texts = [str(word) for word in words]
    wrapper = python = ""
    for index, word in enumerate(texts):
        name = PurePath(word).name
        if python and texts[index - 1] in ("-m", "--module"):
            return _known(_MODULES.get(word), index, texts)
        if _SCRIPT.search(word) and not _is_image(texts, index, wrapper):
            return None
        if python not in ("", "uv") or (wrapper and _is_name(texts, index, wrapper)):
            continue
        if _PYTHON.fullmatch(name):
            python = name
        if _WRAPPERS.fullmatch(name) and not (wrapper and name == "exec"):  # `apptainer exec`
            wrapper = name
        elif name == "accelerate" and texts[index + 1 : index + 2] == ["launch"]:
            return _known(name, index + 1, texts)
        elif name in _PROGRAMS and name != "accelerate":
            return _known(name, index, texts)
        elif not wrapper and not python:
            return None
    return None


def _is_name(words: Sequence[str], index: int, wrapper: str) -> bool:
    """Whether a word belongs to the wrapper: an assignment, the image of a container, or the value of an option."""
    options = next((names for programs, names in _NAMES.items() if wrapper in programs.split("|")), "")
    return "=" in words[index] or words[index - 1] in options.split("|") or _is_image(words, index, wrapper)


def _is_image(words: Sequence[str], index: int, wrapper: str) -> bool:
    """Whether a word is the IMAGE of `apptainer exec --nv IMAGE`: the first word after `exec` that is not an option."""
    if wrapper not in _CONTAINERS or not index or words[index].startswith("-"):
        return False
    before = words[:index]
    at = next((at for at in range(index - 1, -1, -1) if before[at] in ("exec", "run")), None)
    return at is not None and all(word.startswith("-") for word in before[at + 1 :])


def own_words(words: Sequence[str], at: int) -> list[str]:
    """Returns the launcher's own words after the index `at`, up to the script that it starts.

    A word after an option is either its value or the script. It counts as the value unless it has the suffix of a
    script.
    """
    own: list[str] = []
    for word in words[at + 1 :]:
        last = own[-1] if own else ""
        is_value = last.startswith("-") and "=" not in last and last not in _BEFORE_SCRIPT
        if not word.startswith("-") and (not is_value or _SCRIPT.search(word)):
            break
        own.append(word)
    return own


def option(word: str) -> str:
    """Returns the name of a long option without its value, with underscores for dashes; other words unchanged."""
    return f"--{word[2:].partition('=')[0].replace('-', '_')}" if word.startswith("--") else word


def _known(name: str | None, at: int, words: Sequence[str]) -> Launcher | None:
    if name is None:
        return None
    name = name.removesuffix("-launch")
    per = _PROGRAMS[name]
    if name == "deepspeed" and "--launcher" in map(option, own_words(words, at)):
        per = JOB  # it starts the processes of all nodes by ssh, mpirun or srun
    return Launcher(name, at, per=per)


def of_command(words: Sequence[Any], workdir: Path) -> Launcher | None:
    """Returns the launcher that a command starts directly or in the shell script that it names in `workdir`, or None.
    Reads the shell script."""
    launcher = of_words(words)
    if launcher is not None:
        return launcher
    texts = [str(word) for word in words]
    inline = next((at for at, word in enumerate(texts[:-1]) if at and re.fullmatch(r"-[a-zA-Z]*c", word)), None)
    if PurePath(texts[0]).name in _SHELLS and inline is not None:
        return of_shell(texts[inline + 1], "the script after -c")
    named = shell_script(texts)
    text = None if named is None else _read(workdir / named)
    if named is None or text is None or not (PurePath(texts[0]).name in _SHELLS or _is_shell(text)):
        return None
    return of_shell(text, named)


def shell_script(words: Sequence[str]) -> str | None:
    """Returns the file that may be a shell script: the command's program, or the first argument of a shell; else
    None."""
    if PurePath(words[0]).name not in _SHELLS:
        return words[0] if "/" in words[0] else None
    return next((word for word in words[1:] if not word.startswith("-")), None)


def of_shell(text: str, name: str) -> Launcher | None:
    """Returns the launcher that a shell script calls, or None. Of several, one that runs once per job, such as srun,
    takes precedence, because it starts the others."""
    whole = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*$", "", text))
    launchers = [of_words(match["words"].split()) for match in _STARTS.finditer(whole)]
    calls = [Launcher(launcher.name, script=name, per=launcher.per) for launcher in launchers if launcher is not None]
    return next((launcher for launcher in calls if launcher.per == JOB), calls[0] if calls else None)


def _read(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_SCRIPT:
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return None


def _is_shell(text: str) -> bool:
    first = text.partition("\n")[0]
    return first.startswith("#!") and bool(re.search(r"\b(?:ba|da|z|k)?sh\b", first))
