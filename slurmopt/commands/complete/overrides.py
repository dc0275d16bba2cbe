"""Candidates for Hydra's overrides: groups and their options, keys and their values."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from slurmopt.commands.complete import config_folders, config_model
from slurmopt.commands.complete.answer import FILES, FOLDERS, Answer, Candidate, words
from slurmopt.commands.complete.config_model import Model

_MULTIRUN = ("-m", "--multirun")
_CONFIG_DIR = ("--config-dir", "-cd")
_FOLDERS = ("launch.folder", "environment.workdir", "checkpoint.scratch.path", "checkpoint.shared.path")
_FILES = ("launch.template", "sweep.points", "task.python", "environment.container.image")
_CLUSTER = {f"resources.{name}": name for name in ("partition", "account", "qos", "gpu_type")}


def of_launch(typed: list[str], current: str) -> Answer:
    """What a launch accepts beside the overrides `typed`."""
    config_dir = _config_dir(typed)
    model = config_model.load(config_dir, _choices(typed, config_dir))
    taken = {_name(word) for word in typed if "=" in word or word[:1] == "~"}
    sign = current[: len(current) - len(current.lstrip("+~"))]
    key, equals, value = current[len(sign) :].partition("=")
    if equals:
        return _values(model, typed, sign, key, value)
    return Answer(list(_keys(model, sign, key, taken)))


def of_run(current: str) -> Answer:
    """What stands for an override where no experiment is chosen: keys of slurmopt's and their values."""
    key, equals, value = current.partition("=")
    model = {**config_model.load(None, []), "groups": {}}
    return _values(model, [], "", key, value) if equals else Answer(list(_keys(model, "", key, set())))


def options_of(group: str) -> Answer:
    """The options of a config group."""
    return Answer([Candidate(*option) for option in config_model.load(None, [])["groups"].get(group, {}).items()])


def of_stored_config(typed: list[str], current: str) -> Answer:
    """What a retry accepts: keys of slurmopt's that are not fixed."""
    key, equals, value = current.partition("=")
    if not current:
        return Answer()  # there are runs to name first
    model = config_model.load(None, [])
    keys = {name: facts for name, facts in model["keys"].items() if name not in model["fixed"] and not facts["own"]}
    model = {**model, "keys": keys, "groups": {}}
    if equals:
        return _values(model, typed, "", key, value)
    return Answer(list(_keys(model, "", key, {_name(word) for word in typed if "=" in word})))


def _name(word: str) -> str:
    return word.lstrip("+~").partition("=")[0]


def _config_dir(typed: list[str]) -> str | None:
    for before, word in zip(["", *typed], typed, strict=False):
        option, equals, value = word.partition("=")
        if option in _CONFIG_DIR and equals:
            return value
        if before in _CONFIG_DIR:
            return word
    return None


def _choices(typed: list[str], config_dir: str | None) -> list[str]:
    """The overrides that choose configs: on these it depends which keys there are. A sweep takes the first value."""
    places = config_folders.folders(config_dir)
    chosen = []
    for word in typed:
        group = _name(word).partition("@")[0]
        value = word.partition("=")[2]
        if value and group and ".." not in group and any(os.path.isdir(place / group) for place in places):
            chosen.append(f"{word.partition('=')[0]}={value.partition(',')[0]}")
    return chosen


def _keys(model: Model, sign: str, start: str, taken: set[str]) -> Iterator[Candidate]:
    """Groups, then keys up to the next dot."""
    if sign in ("", "+", "~"):
        yield from _groups(model, sign, start, taken)
    base = start[: start.rfind(".") + 1]
    for key, facts in model["keys"].items():
        if not key.startswith(start) or key in taken or not _may(sign, facts):
            continue
        segment, dot, _ = key[len(base) :].partition(".")
        if dot or sign == "+":
            yield Candidate(f"{sign}{base}{segment}.", "" if dot else facts["text"])
        else:
            yield Candidate(f"{sign}{key}{'' if sign == '~' else '='}", _described(facts))


def _may(sign: str, facts: dict[str, Any]) -> bool:
    """Whether Hydra takes this sign before the key: `+` adds a new one to a mapping, `~` removes one of the user's."""
    if sign == "+":
        return str(facts["type"]).startswith("dict")
    return sign in ("", "++") or (sign == "~" and bool(facts["own"]))


def _groups(model: Model, sign: str, start: str, taken: set[str]) -> Iterator[Candidate]:
    for group, options in model["groups"].items():
        is_chosen = group in model["chosen"]
        if group in taken or not options or not group.startswith(start):
            continue
        text = f"a config group: {', '.join(options)}"
        if sign == "~":
            if is_chosen:
                yield Candidate(f"~{group}", text)
        elif is_chosen == (sign == ""):
            yield Candidate(f"{sign}{group}=", text)
        elif not sign and not start:
            yield Candidate(f"+{group}=", text)


def _described(facts: dict[str, Any]) -> str:
    return f"now {facts['now']}. {facts['text']}" if facts["text"] else f"now {facts['now']}"


def _values(model: Model, typed: list[str], sign: str, key: str, value: str) -> Answer:
    """Values of a key or of a group; in a sweep those after the last comma."""
    found = _all_values(model, typed, key, value)
    done = value[: value.rfind(",") + 1] if any(word in _MULTIRUN for word in typed) else ""
    used = done.split(",")
    candidates = [Candidate(f"{sign}{key}={done}{word}", text) for word, text in found.candidates if word not in used]
    return Answer(candidates, found.files)


def _all_values(model: Model, typed: list[str], key: str, value: str) -> Answer:
    if key in model["groups"]:
        return Answer([Candidate(option, text) for option, text in model["groups"][key].items()])
    if key in _CLUSTER:
        from slurmopt.commands.complete import cluster_values

        return cluster_values.of(_CLUSTER[key])
    if key == "launch.run":
        from slurmopt.commands.complete import run_names

        return run_names.answer([word for word in typed if word != "--folder"], value)
    facts = model["keys"].get(key)
    if facts is None:
        return Answer()
    if facts["values"]:
        return words(facts["values"])
    return Answer(files=FOLDERS if key in _FOLDERS else FILES if key in _FILES else "none")
