"""Catalog: the checkpoints of a run on all tiers that can be read, and the lookup of one by its name.

RUN may also be the root of a tier itself, as a folder or an s3:// URL: a fetched checkpoint, or those that were saved
through torch.distributed.checkpoint.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmopt import command_output
from slurmopt.checkpoint.dcp.place import open_store
from slurmopt.checkpoint.format import ledger
from slurmopt.checkpoint.format.ledger import Commit, Records
from slurmopt.checkpoint.tiers import Tier, tiers_of
from slurmopt.config.checkpoint import Checkpoint, checkpoint_of
from slurmopt.config.composition import stored_yaml
from slurmopt.errors import ConfigError, RunError, StorageError, one_line, why_failed
from slurmopt.run_folder.access.files import NotMine
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.find import find
from slurmopt.runs.ownership import name_of
from slurmopt.runs.unreadable_folders import closed_folder, permission_denied
from slurmopt.slow_notice import slow_notice
from slurmopt.storage.kinds import KINDS, kind_of
from slurmopt.storage.store import Store

CHECKPOINT_HELP = "a step, a checkpoint's name or the start of its last part, or latest (default)"
_NODE = re.compile(r"\$\{(\w+(?:\.\w+)*)\}")
_DEEPEST, _LONGEST = 8, 4096
"""Limits for a place in another user's config: the depth of its interpolations, and its characters."""
_SECONDS = 15.0
"""The deadline of a command for a tier that does not answer."""


@dataclass
class Place:
    """One readable tier. `tier` is None for a folder that does not belong to a run."""

    name: str
    store: Store
    tier: Tier | None
    records: Records


@dataclass
class Saved:
    """One complete checkpoint and the places that have it, fastest first."""

    places: dict[str, tuple[Place, Commit]]

    @property
    def commit(self) -> Commit:
        return next(iter(self.places.values()))[1]

    @property
    def name(self) -> str:
        return self.commit.name


@dataclass
class Catalog:
    """The checkpoints of one run. `problems` has a line for each tier that cannot be read."""

    label: str
    run: RunFolder | None
    places: list[Place]
    problems: list[str]

    def checkpoints(self) -> list[Saved]:
        """All complete checkpoints, newest first, in the order in which a restore tries them."""
        checkpoints: dict[str, Saved] = {}
        for place in self.places:
            for commit in place.records.commits:
                checkpoints.setdefault(commit.name, Saved({})).places[place.name] = (place, commit)
        return sorted(checkpoints.values(), key=lambda each: _age(each.commit), reverse=True)

    def find(self, word: str | None) -> Saved:
        """The checkpoint that `word` names. RunError, which lists the checkpoints, where there is none."""
        saved = self.checkpoints()
        if not saved:
            raise RunError(f"{self.label} has no complete checkpoint{self._seen()}")
        if word in (None, "latest"):
            return saved[0]
        assert word is not None
        if word.isdecimal():
            fitting = [each for each in saved if each.commit.step == int(word)][:1]
        else:
            fitting = [each for each in saved if each.name == word]
            fitting = fitting or [each for each in saved if word and each.commit.unique.startswith(word)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise RunError(f"{word!r} can be {', '.join(each.name for each in fitting)}; write more characters of it")
        raise RunError(f"{self.label} has no checkpoint {word!r}{self._aside(word)}; {_steps(saved)}{self._seen()}")

    def print_problems(self) -> None:
        for problem in self.problems:
            command_output.warn(one_line(problem))

    def _aside(self, word: str) -> str:
        aside = {name for place in self.places for name in place.records.damaged}
        return " (it was found damaged and set aside)" if any(_means(word, name) for name in aside) else ""

    def _seen(self) -> str:
        return f" on {', '.join(place.name for place in self.places)}" if self.places else " that can be read from here"


def catalog(args: argparse.Namespace) -> Catalog:
    """Reads the ledgers of the tiers of `args.run`, or of `args.tier` alone; reports those that cannot be read."""
    runs_catalog = _of_root(args.run) or _of_run(find(args.run, args.folder), getattr(args, "tier", None))
    runs_catalog.print_problems()
    return runs_catalog


def add_tier(parser: argparse.ArgumentParser, help_text: str = "look at this tier only") -> None:
    parser.add_argument("--tier", choices=KINDS, help=help_text)


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """Adds the optional arguments RUN and CHECKPOINT."""
    parser.add_argument(
        "run", nargs="?", metavar="RUN", help="a run as in all commands, or the folder of a fetched checkpoint"
    )
    parser.add_argument("checkpoint", nargs="?", metavar="CHECKPOINT", help=CHECKPOINT_HELP)


def _of_root(word: str | None) -> Catalog | None:
    if word is None or (kind_of(word).is_folder and not os.path.isdir(os.path.join(word, ledger.FOLDER))):
        return None
    store = open_store(word, {})
    return Catalog(store.place, None, [Place(kind_of(word).name, store, None, ledger.read(store))], [])


def _of_run(run: RunFolder, only: str | None) -> Catalog:
    config, problems = _config(run)
    tiers = tiers_of(config, run)
    if only is not None:
        tiers = [tier for tier in tiers if tier.name == only]
        problems = [problem for problem in problems if problem.startswith(f"{only}:")]
        if not tiers and not problems:
            raise RunError(f"{run.name}/{run.id} has no tier {only}; it has: {', '.join(config.tiers) or 'none'}")
    result = Catalog(one_line(f"{run.name}/{run.id}"), run, [], problems)
    for tier in tiers:
        try:
            result.places.append(_read(tier))
        except (StorageError, ConfigError) as error:
            result.problems.append(f"{tier.name}: {error}")
    return result


def _read(tier: Tier) -> Place:
    if tier.node_local and not Path(tier.root).is_dir():
        raise StorageError(f"{tier.root} is not on this machine; each node of the job has its own")
    if tier.kind.is_folder and (folder := closed_folder(Path(tier.root, ledger.FOLDER))) is not None:
        raise StorageError(permission_denied(folder))
    with slow_notice(f"asking {tier.root}"):
        return Place(tier.name, tier.store(), tier, ledger.read(tier.store(_SECONDS)))


def _config(run: RunFolder) -> tuple[Checkpoint, list[str]]:
    """The group `checkpoint` of the run's config, and a problem for each tier that is left out.

    Left out are tiers whose place is known only in the job (`${oc.env:TMPDIR}`); and in another user's config whatever
    would read this user's environment or send their credentials.
    """
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        try:
            content = stored_yaml.load(run.config, mine=True)
        except NotMine:
            return _foreign_config(run, stored_yaml.load(run.config))
        return _own_config(run, content)
    except FileNotFoundError as error:
        raise RunError(f"{run.name}/{run.id} has no config.yaml, which says where its checkpoints are") from error
    except (OSError, YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"{run.config} cannot be read: {one_line(why_failed(error))}") from error


def _own_config(run: RunFolder, content: object) -> tuple[Checkpoint, list[str]]:
    """The group of a config of this user: interpolations are resolved, environment variables included."""
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if content is not None and not isinstance(content, dict):
        raise ConfigError(f"{run.config} is not a config")
    config = OmegaConf.create(content or {})
    group = config.get("checkpoint") if isinstance(config, DictConfig) else None
    plain: dict[str, Any] = {}
    problems: list[str] = []
    if not isinstance(group, DictConfig):
        return Checkpoint(), problems
    for key in map(str, group):
        try:
            node = group[key]
            plain[key] = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
        except OmegaConfBaseException as error:
            reason = one_line(str(getattr(error, "msg", None) or error).partition("\n")[0])
            if key not in KINDS:
                raise ConfigError(reason, f"checkpoint.{key}") from error
            why = reason.rpartition(": ")[2].strip("\"'")
            problems.append(f"{key}: only the job knows where it is: {why}")
            plain[key] = {KINDS[key].place_key: None}
    return checkpoint_of(_without(plain, problems)), problems


def _foreign_config(run: RunFolder, held: object) -> tuple[Checkpoint, list[str]]:
    """The group of another user's config: only folders, with interpolations from the config itself.

    Its owner chose the server that would receive this user's S3 credentials, and the environment variables that its
    address would contain. Other values that would need more than the config are left out too.
    """
    group = held.get("checkpoint") if isinstance(held, dict) else None
    settings = group if isinstance(group, dict) else {}
    owner = name_of(run.config.stat().st_uid)
    plain = {key: value for key, value in settings.items() if key not in KINDS and not _has_interpolations(value)}
    problems: list[str] = []
    for key, kind in KINDS.items():
        tier, word = settings.get(key), kind.place_key
        if not isinstance(tier, dict) or tier.get(word) is None:
            plain |= {key: tier} if key in settings and not _has_interpolations(tier) else {}
            continue
        place = _filled(tier[word], held)
        if kind.is_folder and not _has_interpolations(place):
            rest = {name: value for name, value in tier.items() if not _has_interpolations(value)}
            plain[key] = {**rest, word: place}
            continue
        plain[key] = {word: None}
        if not kind.is_folder and not _has_interpolations(place):
            shown = shlex.quote(f"{str(place).rstrip('/')}/{run.name}/{run.id}")
            reason = (
                "your credentials are not sent to a bucket that only this file names; "
                f"if you trust it: slurmopt checkpoint … {shown}"
            )
        else:
            reason = f"your environment variables are not filled in there: {tier[word]}"
        problems.append(f"{key}: config.yaml belongs to another user ({owner}): {reason}")
    return checkpoint_of(_without(plain, problems)), problems


def _filled(text: object, held: object) -> object:
    """Replaces `${NODE.NODE}` in `text` by values of the config `held`. Resolvers such as `${oc.env:NAME}` remain. Text
    that exceeds the limits is returned unchanged."""
    now = text
    for _ in range(_DEEPEST):
        if not isinstance(now, str) or len(now) > _LONGEST:
            return text
        before, now = now, _NODE.sub(lambda match: _node(match, held), now)
        if now == before:
            return now
    return text


def _node(match: re.Match[str], held: object) -> str:
    value = held
    for name in match[1].split("."):
        value = value.get(name) if isinstance(value, dict) else None
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value)[: _LONGEST + 1] if is_plain else match[0]


def _has_interpolations(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_interpolations, value.values()))
    if isinstance(value, list):
        return any(map(_has_interpolations, value))
    return isinstance(value, str) and ("${" in value or value.startswith("~"))


def _without(plain: dict[str, Any], problems: list[str]) -> Mapping[str, Any]:
    """Resets `durable`, which may name a tier that was left out, and is not used by commands."""
    return {**plain, "durable": "auto"} if problems else plain


def _age(commit: Commit) -> tuple[int, int, float]:
    return commit.step, commit.attempt, commit.time


def _means(word: str, name: str) -> bool:
    step, _, unique = name.removeprefix("step-").partition("/")
    return word == name or unique == word or (word.isdecimal() and int(step) == int(word))


def _steps(saved: list[Saved]) -> str:
    steps = sorted({each.commit.step for each in saved}, reverse=True)
    shown = ", ".join(map(str, steps[:10]))
    return f"there are steps {shown}{' and earlier ones' if len(steps) > 10 else ''}"
