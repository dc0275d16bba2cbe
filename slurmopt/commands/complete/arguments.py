"""Candidates for an argument of a command."""

from __future__ import annotations

from typing import Any

from slurmopt.commands.complete.answer import FILES, FOLDERS, NONE, Answer, Candidate, words

_LAUNCH = "slurmopt.launch"
_OVERRIDE = "KEY=VALUE"
_FOLDERS = ("DIR", "FOLDER", "folder", "config_dir")
_FILES = ("FILE", "PATH")
_CLUSTER = ("partition", "account", "qos", "gpu_type")
_ANY_NUMBER = ("*", "+", "...")

Argument = dict[str, Any]


def answer(module: str, arguments: list[Argument], typed: list[str], current: str) -> Answer:
    """What a command with these arguments accepts after the words `typed`."""
    options = {name: argument for argument in arguments for name in argument["names"]}
    awaiting = options.get(typed[-1]) if typed else None
    if awaiting is not None and awaiting["nargs"] != 0 and (awaiting["nargs"] != "?" or current[:1] != "-"):
        return _values(awaiting, typed, current)
    if current.startswith("-"):
        option, equals, value = current.partition("=")
        if equals and option in options and options[option]["nargs"] != 0:
            return _prefixed(f"{option}=", _values(options[option], typed, value))
        return _options(arguments, typed)
    found = _positional(module, arguments, _positionals(typed, options), typed, current)
    is_nothing = not found.candidates and found.files == NONE
    return _options(arguments, typed) if is_nothing and not current else found


def _prefixed(prefix: str, found: Answer) -> Answer:
    return Answer([Candidate(f"{prefix}{word}", text) for word, text in found.candidates], found.files)


def _positionals(typed: list[str], options: dict[str, Argument]) -> list[str]:
    """The words that are neither options nor their values."""
    found, before = [], ""
    for word in typed:
        takes = before in options and options[before]["nargs"] != 0
        if not takes and word[:1] != "-":
            found.append(word)
        before = word
    return found


def _options(arguments: list[Argument], typed: list[str]) -> Answer:
    """The options that can still be given, the long names of those that have one."""
    given = {word.partition("=")[0] for word in typed if word[:1] == "-"}
    taken = [one for one in arguments if given.intersection(one["names"])]
    beside = {one["beside"] for one in taken if one["beside"] is not None}
    found = []
    for one in arguments:
        if (one in taken and not one["repeated"]) or (one["beside"] in beside and one not in taken):
            continue
        names = [name for name in one["names"] if name.startswith("--")] or one["names"]
        found += [Candidate(name, one["text"]) for name in names]
    return Answer(sorted(found))


def _positional(module: str, arguments: list[Argument], given: list[str], typed: list[str], current: str) -> Answer:
    """Candidates for the next positional argument."""
    if module == _LAUNCH:
        from slurmopt.commands.complete import overrides

        return overrides.of_launch(typed, current)
    positional = [one for one in arguments if not one["names"]]
    if not positional or (len(given) >= len(positional) and positional[-1]["nargs"] not in _ANY_NUMBER):
        return Answer()
    found = _values(positional[min(len(given), len(positional) - 1)], typed, current)
    return Answer([one for one in found.candidates if one.word not in given], found.files)


def _values(argument: Argument, typed: list[str], current: str) -> Answer:
    """What an argument takes, from its choices, its metavar, or its name."""
    if argument["choices"] is not None:
        return words(argument["choices"])
    shown = argument["metavar"]
    kind = shown.split()[0].strip("[]") if shown.split() else ""
    if kind in ("RUN", "SWEEP"):
        from slurmopt.commands.complete import run_names

        runs = run_names.answer(typed, current, sweeps_only=kind == "SWEEP")
        if "=" in shown:  # RUN | key=value
            from slurmopt.commands.complete import overrides

            return Answer([*runs.candidates, *overrides.of_stored_config(typed, current).candidates], runs.files)
        return runs
    if shown.upper() == _OVERRIDE or argument["dest"] == "cluster":
        from slurmopt.commands.complete import overrides

        return overrides.of_run(current) if argument["dest"] != "cluster" else overrides.options_of("cluster")
    if argument["dest"] in _CLUSTER:
        from slurmopt.commands.complete import cluster_values

        return cluster_values.of(argument["dest"])
    return Answer(files=_files(argument, kind))


def _files(argument: Argument, kind: str) -> str:
    if kind in _FOLDERS or argument["dest"] in _FOLDERS:
        return FOLDERS
    return FILES if kind in _FILES or argument["path"] else NONE
