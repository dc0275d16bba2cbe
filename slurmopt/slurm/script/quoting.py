"""Values made safe for their place in a job script: a word of bash, a directive, a file name pattern of Slurm's."""

from __future__ import annotations

import re
import shlex

from slurmopt.config.composition.deferred import DEFERRED


def shell(value: object) -> str:
    """One word of bash that means `value` and nothing else."""
    return shlex.quote(str(value))


def shell_deferred(value: object, key: str) -> str:
    """A word of bash in which `${oc.env:NAME}` is the job's own variable; without it the job stops, naming `key`."""
    text, parts, position = str(value), [], 0
    for match in DEFERRED.finditer(text):
        if match.start() > position:
            parts.append(shell(text[position : match.start()]))
        parts.append(_variable(match[1], match[2], key))
        position = match.end()
    if position < len(text) or not parts:
        parts.append(shell(text[position:]))
    return "".join(parts)


def _variable(name: str, default: str | None, key: str) -> str:
    if default is not None:
        escaped = re.sub(r'([\\"$`])', r"\\\1", default)
        return f'"${{{name}-{escaped}}}"'
    return f'"${{{name}?slurmopt: {key} needs {name} in the environment of the job}}"'


def directive(option: str, value: object = True) -> str:
    """One sbatch option for a `#SBATCH` line; `True` stands for an option without a value."""
    if value is True:
        return f"--{option}"
    return f"--{option}={_directive_value(str(value))}"


def _directive_value(text: str) -> str:
    """sbatch reads its lines by rules of its own: quotes group, a backslash escapes, ` #` starts a comment."""
    text = "".join(char if char.isprintable() else " " for char in text)
    if re.fullmatch(r"[\w@%+=:,./^-]+", text, re.ASCII):
        return text
    return '"' + re.sub(r'([\\"])', r"\\\1", text) + '"'


def file_pattern(path: object) -> str:
    """A path for `--output`, in which Slurm would fill in `%j` and its kind."""
    return str(path).replace("%", "%%")


def comment_line(text: str) -> str:
    """Text for one comment line of the script."""
    return "".join(char if char.isprintable() else " " for char in text)
