#!/usr/bin/env python3
"""Writes man/*.1 from the parsers of the commands: a page for `slurmopt`, and one for each command.

scripts/man_pages.py            write the pages
scripts/man_pages.py --check    exit 1 if a page is missing, out of date, or of no command

argparse-manpage does not do it: it formats what argparse prints, which differs between the versions of Python that are
supported, and it knows neither commands that are loaded when they are used nor pages that refer to each other.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from slurmopt import __version__
from slurmopt.commands import COMMANDS
from slurmopt.commands.parsers import Table, help_of, parser_of, shown_options, subcommands

TARGET = Path(__file__).resolve().parent.parent / "man"
DATE = "2026-11-24"
"""In the footer of each page: when their form changed last."""
SUMMARY = "one Hydra config becomes a GPU training that Slurm cannot lose"
RUN = """RUN is a name (its latest run), NAME/ID, an ID or a prefix of one, a folder, a Slurm job ID, or nothing for the
latest run. A sweep is named in the same way; its points are SWEEP/17, SWEEP/3-9."""
STATUSES = {
    "0": "Success; for a command that waits for a run, the run has finished.",
    "1": "Failure: the run did not finish, or Slurm does not answer.",
    "2": "Bad input: nothing was submitted. One line on standard error says what is valid.",
    "130": "Interrupted by Ctrl-C.",
    "141": "The reader of the output has closed it.",
}
VARIABLES = {
    "SLURMOPT_FOLDER": "The folder of your runs, instead of runs in the current directory.",
    "SLURM_CONF": "Where Slurm's own configuration is.",
}


def text(words: str) -> str:
    """`words` as roff: nothing in them is taken for a request or an escape."""
    words = words.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    words = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in words)
    return f"\\&{words}" if words.startswith(".") else words


def verbatim(lines: str) -> Iterator[str]:
    yield ".nf"
    for line in lines.strip("\n").splitlines():
        yield text(line) or ".sp"
    yield ".fi"


def metavar(action: argparse.Action) -> str:
    """The name of an argument's value, as the help shows it."""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is not None:
        return action.metavar
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper() if action.option_strings else action.dest


def value(action: argparse.Action) -> str:
    """A value with its number: `[RUN]`, `RUN ...`."""
    name = metavar(action)
    if action.nargs == "?":
        return f"[{name}]"
    if action.nargs in ("*", argparse.REMAINDER):
        return f"[{name} ...]"
    return f"{name} ..." if action.nargs == "+" else name


def names(action: argparse.Action) -> str:
    """`-h, --help`, or `--folder DIR`."""
    shown = ", ".join(action.option_strings)
    return shown if action.nargs == 0 else f"{shown} {value(action)}"


def synopsis(parser: argparse.ArgumentParser) -> str:
    if parser.usage:
        return " ".join((parser.usage % {"prog": parser.prog}).split())
    groups = {id(action): group for group in parser._mutually_exclusive_groups for action in group._group_actions}
    parts, done = [parser.prog], set()
    for action in shown_options(parser):
        group = groups.get(id(action))
        if group is None:
            parts.append(bracketed(short(action), action.required))
        elif id(group) not in done:
            done.add(id(group))
            shown = [short(one) for one in group._group_actions if one.help != argparse.SUPPRESS]
            parts.append(bracketed(" | ".join(shown), False))
    return " ".join([*parts, *(value(action) for action in parser._actions if not action.option_strings)])


def short(action: argparse.Action) -> str:
    return action.option_strings[0] if action.nargs == 0 else f"{action.option_strings[0]} {value(action)}"


def bracketed(words: str, required: bool) -> str:
    return words if required else f"[{words}]"


def described(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The arguments and options, by the groups of the help."""
    for group in parser._action_groups:
        actions = [one for one in group._group_actions if one.help != argparse.SUPPRESS]
        if not actions:
            continue
        title = {"positional arguments": "ARGUMENTS"}.get(group.title or "", (group.title or "").upper())
        yield f".SH {text(title)}"
        if group.description:
            yield text(" ".join(group.description.split()))
        for action in actions:
            yield ".TP"
            yield f".B {text(names(action) if action.option_strings else value(action))}"
            yield text(help_of(parser, action) or choices(action))


def choices(action: argparse.Action) -> str:
    return f"one of {', '.join(map(str, action.choices))}" if action.choices else f"see {metavar(action)}"


def head(name: str, line: str) -> Iterator[str]:
    yield f'.TH {text(name.upper())} 1 {DATE} "slurmopt {__version__}" "slurmopt"'
    yield ".SH NAME"
    yield f"{text(name)} \\- {text(line)}"


def listed(title: str, entries: dict[str, str]) -> Iterator[str]:
    yield f".SH {title}"
    for name, line in entries.items():
        yield from (".TP", f".B {text(name)}", text(" ".join(line.split())))


def see_also(others: list[str]) -> Iterator[str]:
    yield ".SH SEE ALSO"
    for at, name in enumerate(others):
        yield f".BR {text(name)} (1){',' if at < len(others) - 1 else ''}"


def command_page(name: str, line: str, module: str) -> str:
    parser = parser_of(module)
    if parser is None:
        raise SystemExit(f"{module} has no parser()")
    parts = [*head(name, line), ".SH SYNOPSIS", text(synopsis(parser)), ".SH DESCRIPTION"]
    raw = parser.formatter_class is not argparse.HelpFormatter
    description = parser.description or line
    parts += verbatim(description) if raw and "\n" in description else [text(" ".join(description.split()))]
    if "RUN" in synopsis(parser):
        parts += [".PP", text(" ".join(RUN.split()))]
    parts += described(parser)
    if parser.epilog:
        parts += [".SH NOTES", *(verbatim(parser.epilog) if raw else [text(" ".join(parser.epilog.split()))])]
    below = [f"{name}-{sub}" for sub in subcommands(module)]
    return "\n".join([*parts, *listed("EXIT STATUS", STATUSES), *see_also(["slurmopt", *below])]) + "\n"


def main_page() -> str:
    parts = [*head("slurmopt", SUMMARY), ".SH SYNOPSIS", text("slurmopt COMMAND [words]"), ".SH DESCRIPTION"]
    parts += [text("Each command has a page of its own, such as slurmopt-launch."), ".PP", text(" ".join(RUN.split()))]
    parts += listed("COMMANDS", {name: line for name, (_, line) in COMMANDS.items()})
    parts += [*listed("ENVIRONMENT", VARIABLES), *listed("EXIT STATUS", STATUSES)]
    parts += [".SH EXAMPLES", *verbatim("slurmopt launch +experiment=quickstart\nslurmopt status --watch")]
    return "\n".join([*parts, *see_also([f"slurmopt-{name}" for name in COMMANDS])]) + "\n"


def pages(table: Table = COMMANDS, prefix: str = "slurmopt") -> Iterator[tuple[str, str]]:
    """The name of each file, and its text."""
    for name, (module, line) in table.items():
        yield f"{prefix}-{name}.1", command_page(f"{prefix}-{name}", line, module)
        yield from pages(subcommands(module), f"{prefix}-{name}")


def main() -> int:
    made = {"slurmopt.1": main_page(), **dict(pages())}
    there = {path.name: path.read_text(encoding="utf-8") for path in TARGET.glob("*.1")}
    if "--check" in sys.argv[1:]:
        wrong = sorted(name for name in {*made, *there} if made.get(name) != there.get(name))
        if wrong:
            print(f"{', '.join(wrong)} out of date; run scripts/man_pages.py", file=sys.stderr)
        return 1 if wrong else 0
    TARGET.mkdir(exist_ok=True)
    for name in there.keys() - made.keys():
        (TARGET / name).unlink()
    for name, page in made.items():
        (TARGET / name).write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
