"""What a person meant by a word that is no override, or by a value that Hydra cannot read."""

from __future__ import annotations

import difflib
import re
import shlex
from pathlib import Path

from slurmopt.config.task_command.startable import looks_like_a_command, runnable
from slurmopt.errors import ConfigError, one_line
from slurmopt.launching.launch_flags import configs_in

_OF_RUN = {"--local", "--dry-run", "--wait", "--json"}
"""Options of a launch that `slurmopt run` has, too."""
_SEVERAL = re.compile(
    r"(?P<key>[+~]*[\w./@-]+)=(?P<value>[^\s'\"\[{(\\]+,[^\s'\"\]})\\]+|(?:range|choice|interval)\(.*\))"
)


def no_override(words: list[str], at: int) -> str:
    """The message for `words[at]`, which is no override: an experiment without its key, a batch script, spaces around
    `=`, or a command as for srun."""
    word, before, after = words[at], words[:at], words[at + 1 :]
    shown, experiments = one_line(repr(word)), configs_in(Path("conf/experiment"))
    name = word.removeprefix("conf/").removeprefix("experiment/").removesuffix(".yaml")
    if name in experiments:
        launch = shlex.join(["slurmopt", "launch", *before, f"+experiment={name}", *after])
        return f"{shown} is not an override; to launch that experiment: {launch}"
    if is_batch_script(word):
        return f"{shown} is a batch script; make an experiment of it: slurmopt import {shlex.quote(word)}"
    if after and after[0].startswith("="):
        value = after[0][1:] or "".join(after[1:2])
        return f"{shown} is not an override; write it without spaces: {shlex.quote(f'{word}={value}')}"
    if looks_like_a_command(words[at:], Path.cwd()):
        command = runnable(words[at:], Path.cwd())
        as_run = {*before} <= _OF_RUN
        typed = (
            ["run", *before, "--", *command] if as_run else ["launch", *before, f"task.command={shlex.join(command)}"]
        )
        return f"{shown} is not an override; to run a command: slurmopt {shlex.join(typed)}"
    near = difflib.get_close_matches(name, experiments, n=1)
    hint = f" (did you mean +experiment={near[0]}?)" if near else ""
    return f"{shown} is not an override{hint}; valid: key=value"


def is_batch_script(word: str) -> bool:
    """Whether the word names a file with lines of #SBATCH."""
    try:
        with open(word, encoding="utf-8", errors="replace") as file:
            return any(line.startswith("#SBATCH") for line in file.readlines(1 << 16))
    except (OSError, ValueError):
        return False


def refuse_several_values(words: list[str]) -> None:
    """Raises ConfigError for an override with several values, which needs -m."""
    for word in words:
        if match := _SEVERAL.fullmatch(word):
            key, value = match["key"], match["value"]
            also = "" if "(" in value else f"; for one list {key}=[{value}], for one text \"{key}='{value}'\""
            raise ConfigError(f"has several values; add -m for a sweep{also}", key.lstrip("+~"))
