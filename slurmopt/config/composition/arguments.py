"""The command line of a launch: Hydra's flags, `--config-dir`, and overrides."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from slurmopt.errors import ConfigError

HYDRA_FLAGS = ("--cfg", "-c", "--help", "-h", "--hydra-help", "--info", "-i", "--shell-completion", "-sc", "--version")
_WITH_VALUE = ("--cfg", "-c", "--info", "-i", "--package", "-p")
"""Flags of Hydra that take the next word as their value."""
_CFG_KINDS = ("job", "hydra", "all")
_MULTIRUN = ("-m", "--multirun")
_CONFIG_DIR = ("--config-dir", "-cd")


@dataclass(frozen=True)
class Arguments:
    """The parsed arguments of `slurmopt launch`."""

    overrides: list[str]
    config_dir: str | None
    shows: bool
    """Whether Hydra shows information (`--cfg`, `--help`, `--info`) instead of a launch."""
    words: list[str]
    """All arguments except for `--config-dir`."""
    multirun: bool = False
    """Whether it is a sweep (`-m`)."""


def parse(argv: list[str]) -> Arguments:
    """Parses the arguments of a launch. Raises ConfigError for an unknown option or an invalid override."""
    for word in argv:
        if not word.isascii() and "\udc80" <= max(word) <= "\udcff":  # Python's surrogate escapes for invalid UTF-8
            raise ConfigError(f"{word!r} is not valid UTF-8")
    words, config_dir = _take_config_dir(argv)
    _refuse_command(words)
    multirun = any(word in _MULTIRUN for word in words)
    _check_shown(words)
    shows = any(word.split("=")[0] in HYDRA_FLAGS for word in words)
    if shows:
        return Arguments(words, config_dir, shows, words)
    words = [word for word in words if word not in _MULTIRUN]
    _refuse_options(words)
    _refuse_beside_run(words, multirun)
    return Arguments(words, config_dir, shows, words, multirun)


def _take_config_dir(argv: list[str]) -> tuple[list[str], str | None]:
    words: list[str] = []
    config_dir = None
    rest = iter(argv)
    for word in rest:
        option, equals, value = word.partition("=")
        if option not in _CONFIG_DIR:
            words.append(word)
            continue
        config_dir = value if equals else next(rest, None)
        if not config_dir:
            raise ConfigError("needs a folder", option)
    return words, config_dir


def _check_shown(words: list[str]) -> None:
    """Raises ConfigError for `--cfg` without a kind, for which Hydra would print its whole usage text."""
    for word, following in pairwise([*words, ""]):
        if word in ("--cfg", "-c") and following not in _CFG_KINDS:
            raise ConfigError(f"needs one of {', '.join(_CFG_KINDS)}", word)


def _refuse_options(words: list[str]) -> None:
    for word in words:
        if not word.strip():
            raise ConfigError(f"{word!r} is not an override; valid: key=value")
        if word.startswith("-"):
            raise ConfigError(
                "unknown option; valid: overrides such as lr=0.1, -m, --config-dir DIR, --cfg job, --info, --help", word
            )


def _refuse_command(words: list[str]) -> None:
    """Raises ConfigError if a command is given as for srun or torchrun; the message has the launch that runs it."""
    pairs = enumerate(pairwise(["", *words]))
    at = next((at for at, (before, word) in pairs if _reads_like_a_word(word) and before not in _WITH_VALUE), None)
    if at is None:
        return
    from slurmopt.config.task_command.startable import typed_as_words

    meant = typed_as_words(words[at:], Path.cwd())
    if meant is not None:
        before = shlex.join(words[:at]) + " " if at else ""
        raise ConfigError(f"{words[at]!r} is not an override; to run a command: slurmopt launch {before}{meant}")


def _reads_like_a_word(word: str) -> bool:
    return "=" not in word and word[:1] not in ("-", "+", "~")


def _refuse_beside_run(words: list[str], multirun: bool) -> None:
    """Raises ConfigError for overrides other than `launch.…` with `launch.run`: a run continues with its stored
    config."""
    if not any(word.startswith("launch.run=") for word in words):
        return
    if multirun:
        raise ConfigError(
            "is one run, and -m is for many; to go on with points of a sweep: slurmopt retry", "launch.run"
        )
    if others := [word for word in words if not word.startswith("launch.")]:
        raise ConfigError(f"a run goes on with its stored config; leave out {' '.join(others)}", "launch.run")
