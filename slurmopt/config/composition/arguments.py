"""The command line of a launch: Hydra's flags, `--config-dir`, and overrides."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from slurmopt.errors import ConfigError

HYDRA_FLAGS = ("--cfg", "-c", "--help", "-h", "--hydra-help", "--info", "-i", "--shell-completion", "-sc", "--version")
_WITH_VALUE = ("--cfg", "-c", "--info", "-i", "--package", "-p")
"""Flags of Hydra's of which the next word is no override."""
_CFG_KINDS = ("job", "hydra", "all")
_MULTIRUN = ("-m", "--multirun")
_CONFIG_DIR = ("--config-dir", "-cd")


@dataclass(frozen=True)
class Arguments:
    """What was typed after `slurmopt launch`."""

    overrides: list[str]
    config_dir: str | None
    shows: bool
    """Whether Hydra is asked to show something (`--cfg`, `--help`, `--info`) instead of a launch."""
    words: list[str]
    """All that was typed but for `--config-dir`."""
    multirun: bool = False
    """Whether it is a sweep (`-m`)."""


def parse(argv: list[str]) -> Arguments:
    """Sorts the words of a command line. ConfigError for an option that a launch does not know."""
    for word in argv:
        if not word.isascii() and "\udc80" <= max(word) <= "\udcff":  # how Python shows bytes that are no UTF-8
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
    """Hydra answers a `--cfg` without a kind by its whole usage."""
    for word, following in pairwise([*words, ""]):
        if word in ("--cfg", "-c") and following not in _CFG_KINDS:
            raise ConfigError(f"needs one of {', '.join(_CFG_KINDS)}", word)


def _refuse_options(words: list[str]) -> None:
    for word in words:
        if not word.strip():
            raise ConfigError(f"{word!r} is no override; valid: key=value")
        if word.startswith("-"):
            raise ConfigError(
                "unknown option; valid: overrides such as lr=0.1, -m, --config-dir DIR, --cfg job, --info, --help", word
            )


def _refuse_command(words: list[str]) -> None:
    """A command that was typed as after srun or torchrun is answered with the launch that runs it."""
    pairs = enumerate(pairwise(["", *words]))
    at = next((at for at, (before, word) in pairs if _reads_like_a_word(word) and before not in _WITH_VALUE), None)
    if at is None:
        return
    from slurmopt.config.task_command.startable import typed_as_words

    meant = typed_as_words(words[at:], Path.cwd())
    if meant is not None:
        before = shlex.join(words[:at]) + " " if at else ""
        raise ConfigError(f"{words[at]!r} is no override; to run a command: slurmopt launch {before}{meant}")


def _reads_like_a_word(word: str) -> bool:
    return "=" not in word and word[:1] not in ("-", "+", "~")


def _refuse_beside_run(words: list[str], multirun: bool) -> None:
    """A run goes on as it was: with `launch.run` nothing but `launch.…` can be said."""
    if not any(word.startswith("launch.run=") for word in words):
        return
    if multirun:
        raise ConfigError(
            "is one run, and -m is for many; to go on with points of a sweep: slurmopt retry", "launch.run"
        )
    if others := [word for word in words if not word.startswith("launch.")]:
        raise ConfigError(f"a run goes on with its stored config; leave out {' '.join(others)}", "launch.run")
