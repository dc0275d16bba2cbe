"""The command line of a launch: options, and overrides of the config."""

from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import dataclass

from slurmopt.errors import ConfigError
from slurmopt.launching.launch_flags import as_overrides, hydra_words, parser
from slurmopt.launching.meant_override import no_override, refuse_several_values


@dataclass(frozen=True)
class Arguments:
    """The parsed arguments of `slurmopt launch`."""

    overrides: list[str]
    """Those that are typed, and those that options stand for."""
    config_dir: str | None
    shown_by_hydra: list[str]
    """The words for Hydra where it shows information (`--cfg`, `--info`) instead of a launch; else empty."""
    multirun: bool = False
    """Whether it is a sweep (`-m`)."""
    text: str | None = None
    """What `--help` or `--version` prints."""


def parse(argv: list[str]) -> Arguments:
    """Parses the arguments of a launch. Raises InputError for an unknown option, ConfigError for what is no
    override."""
    for word in argv:
        if not word.isascii() and "\udc80" <= max(word) <= "\udcff":  # Python's surrogate escapes for invalid UTF-8
            raise ConfigError(f"{word!r} is not valid UTF-8")
    args, unknown = parser().parse_known_intermixed_args(argv)
    if args.help or args.version:
        return Arguments([], None, [], text=_text(args))
    _check_words(argv, args.overrides, unknown)
    if args.config_dir == "":
        raise ConfigError("needs a folder", "--config-dir")
    if not args.multirun:
        refuse_several_values(args.overrides)
    overrides = [*args.overrides, *as_overrides(args)]
    _refuse_beside_run(overrides, args.multirun)
    shown = hydra_words(args)
    if shown:
        shown += [*(["-m"] if args.multirun else []), *overrides]
    return Arguments(overrides, args.config_dir, shown, args.multirun)


def _text(args: argparse.Namespace) -> str:
    from slurmopt import __version__

    return f"slurmopt {__version__}" if args.version else parser().format_help().rstrip()


def _check_words(argv: list[str], words: list[str], unknown: list[str]) -> None:
    """Raises ConfigError for the first word that is neither an option nor an override."""
    first = next((word for word in argv if word in unknown or (word in words and _is_no_override(word))), None)
    if first is None:
        return
    if not first.strip():
        raise ConfigError(f"{first!r} is not an override; valid: key=value")
    at = argv.index(first)
    if first in unknown:
        raise ConfigError(_about_option(argv, at), first)
    raise ConfigError(no_override(argv, at))


def _about_option(argv: list[str], at: int) -> str:
    """What was meant by an unknown option: `--lr 0.1` and `--lr=0.1` are the override `lr=0.1`."""
    name, _, value = argv[at].lstrip("-").partition("=")
    name = "+experiment" if name == "experiment" else name.replace("-", "_")
    if not re.fullmatch(r"\+?[a-zA-Z]\w[\w.]*", name):
        return "unknown option; see slurmopt launch --help"
    meant = shlex.quote(f"{name}={value or ' '.join(argv[at + 1 : at + 2])}")
    return f"unknown option; a key of the config has no dashes: {meant}; see slurmopt launch --help"


def _is_no_override(word: str) -> bool:
    return "=" not in word and word[:1] not in ("+", "~")


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
