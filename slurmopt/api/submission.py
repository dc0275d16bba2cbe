"""`submit`: what `slurmopt launch` does, as a function that returns the run or the sweep."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, overload

from slurmopt.api.hydra_state import alone
from slurmopt.api.overrides import Overrides
from slurmopt.api.plain_errors import plain_errors
from slurmopt.api.run import Run
from slurmopt.api.sweep import Sweep
from slurmopt.api.values import Axis, Value
from slurmopt.errors import ConfigError, InputError, one_line
from slurmopt.grid.override_syntax import override_value
from slurmopt.runs.submit.plan import Plan
from slurmopt.sweeps.submit.plan import SweepPlan

Command: TypeAlias = "str | Sequence[str | os.PathLike[str]]"
Folder: TypeAlias = "str | os.PathLike[str]"


@overload
def submit(  # type: ignore[overload-overlap] # without keys the first one counts
    experiment: str | None = None, /, *overrides: Mapping[str, Value], command: Command | None = None,
    config_dir: Folder | None = None, multirun: Literal[False] | None = None, **keys: Value,
) -> Run: ...  # fmt: skip
@overload
def submit(
    experiment: str | None = None, /, *overrides: str | Mapping[str, Value | Axis], command: Command | None = None,
    config_dir: Folder | None = None, multirun: Literal[False], **keys: Value,
) -> Run: ...  # fmt: skip
@overload
def submit(
    experiment: str | None = None, /, *overrides: str | Mapping[str, Value | Axis], command: Command | None = None,
    config_dir: Folder | None = None, multirun: Literal[True], **keys: Value | Axis,
) -> Sweep: ...  # fmt: skip
@overload
def submit(
    experiment: str | None = None, /, *overrides: Mapping[str, Value], command: Command | None = None,
    config_dir: Folder | None = None, multirun: None = None, **keys: Value | Axis,
) -> Sweep: ...  # fmt: skip
@overload
def submit(
    experiment: str | None = None, /, *overrides: str | Mapping[str, Value | Axis], command: Command | None = None,
    config_dir: Folder | None = None, multirun: bool | None = None, **keys: Value | Axis,
) -> Run | Sweep: ...  # fmt: skip
@plain_errors
def submit(
    experiment: str | None = None,
    /,
    *overrides: str | Mapping[str, Value | Axis],
    command: Command | None = None,
    config_dir: Folder | None = None,
    multirun: bool | None = None,
    **keys: Value | Axis,
) -> Run | Sweep:
    """Submits a run, or a sweep, and returns it at once. `submit("mine", lr=0.1)` does what
    `slurmopt launch +experiment=mine lr=0.1` does: composes the config, checks it against the cluster, and submits it
    exactly once; without Slurm the run starts on this machine.

    `experiment`: the name of a config in `conf/experiment/`; None: none, as for a `command`.
    `overrides`: overrides of Hydra (`"resources.nodes=2"`), or mappings from keys to values, for keys that are no
    names in Python (`{"resources.nodes": 2, "+new.key": 1}`). Later ones win; `keys` come last.
    `command`: a program and its arguments, in place of a function; `"python train.py --lr ${lr}"` takes `lr` from the
    config.
    `config_dir`: the folder of your configs; None: `conf/` in the current folder, where there is one.
    `multirun`: True: a sweep; False: one run. None: a sweep where a key has several values.
    `keys`: keys of the config and their values. A text, number, bool, None, path or enum arrives in the job's config as
    it is: commas, quotes and `${` in texts mean nothing. A mapping is merged into that of the config. A **list**, a
    range, or an array of numpy is an axis of a sweep, `lr=[0.1, 0.2]`; a **tuple** is one value, a list in the config:
    `betas=(0.9, 0.95)`. Inside of mappings and tuples a list is a list. With an experiment a key must be in its config;
    `{"+key": value}` adds one. Without an experiment all keys that are not slurmopt's are added.

    It waits for nothing and prints nothing on standard output; `launch.wait` and `launch.json` have no effect.

    Raises ConfigError for an invalid key or value, CheckError where the cluster does not have what is asked for, other
    errors of `slurmopt.errors` where Slurm refuses or does not answer. Nothing is submitted then, except for
    SubmissionUnknown and SubmissionNotNoted, whose message has the `launch.id` with which a repetition submits once.
    """
    with alone():
        plan = _plan(experiment, overrides, command, _folder(config_dir), multirun, keys)
        _refuse_for_command(plan)
        from slurmopt.launching.execute import submit as submit_plan

        submit_plan(plan)
    return Sweep(plan.sweep) if isinstance(plan, SweepPlan) else Run(plan.job.folder)


def _plan(
    experiment: str | None,
    overrides: Sequence[str | Mapping[str, Any]],
    command: Command | None,
    config_dir: str | None,
    multirun: bool | None,
    keys: Mapping[str, Any],
) -> Plan:
    from slurmopt.launching import run_plan, sweep_plan

    words = [*_words(experiment, overrides, command, config_dir, keys)]
    axis = _axis(words)
    if axis is not None and multirun is False:
        raise ConfigError("has several values, and multirun is False; give one value", axis)
    if multirun or axis is not None:
        return sweep_plan.plan_sweep(words, config_dir)
    return run_plan.plan(words, config_dir)


def _words(
    experiment: str | None,
    overrides: Sequence[str | Mapping[str, Any]],
    command: Command | None,
    config_dir: str | None,
    keys: Mapping[str, Any],
) -> Iterator[str]:
    """The overrides as they would be typed."""
    from slurmopt.config.composition.compose import user_folder
    from slurmopt.config.composition.shipped import shipped

    if experiment is not None:
        yield f"+experiment={_name(experiment)}"
    if command is not None:
        yield f"task.command={_command(command)}"
    own = user_folder(config_dir)
    writer = Overrides([shipped("conf"), *([own] if own else [])], adds=experiment is None)
    for given in overrides:
        yield from [_typed(given)] if isinstance(given, str) else writer.of_items(_items(given))
    yield from writer.of_items(keys.items())


def _name(experiment: object) -> str:
    if callable(experiment):
        target = ".".join(str(getattr(experiment, of, "<>")) for of in ("__module__", "__qualname__"))
        what, target = ("", target) if _is_in_a_file(target) else (" of this session", "train.main")
        raise ConfigError(
            f"is a function{what}; a job imports it from a file: submit(**{{'task._target_': '{target}'}})",
            "experiment",
        )
    if not isinstance(experiment, str) or not experiment.strip():
        hint = "; a command is submit(command=[…])" if isinstance(experiment, (list, tuple)) else ""
        shown = one_line(repr(experiment))[:100]
        raise ConfigError(f"{shown} is no name of a config in conf/experiment/{hint}", "experiment")
    if "=" in experiment:
        raise ConfigError(
            f"{one_line(experiment)!r} is an override; they come after the name: submit(None, {experiment!r})",
            "experiment",
        )
    return override_value(experiment)


def _is_in_a_file(target: str) -> bool:
    return not target.startswith("__main__.") and "<" not in target


def _command(command: Command) -> str:
    """The command with its interpolations as they are."""
    if isinstance(command, str):
        return override_value(command)
    words = [os.fspath(word) if isinstance(word, os.PathLike) else word for word in command]
    return override_value([*words])


def _items(given: object) -> Iterable[tuple[Any, Any]]:
    if isinstance(given, Mapping):
        return given.items()
    raise ConfigError(f"{one_line(repr(given))} is no override; valid: 'key=value', or a mapping from keys to values")


def _typed(word: str) -> str:
    """An override that the caller has written."""
    if not word.strip() or word.startswith("-") or ("=" not in word and not word.startswith("~")):
        raise ConfigError(f"{one_line(word)!r} is no override; valid: 'key=value'")
    key = word.partition("=")[0]
    if key.lstrip("+") == "launch.run":
        raise ConfigError("to go on with a run: slurmopt.find(RUN).retry()", key)
    return word


def _axis(words: list[str]) -> str | None:
    """The first key that has several values, or names the points of a sweep; None for one run."""
    from slurmopt.config.composition.override import parsed

    overrides = [parsed(word) for word in words]
    axes = (item for item in overrides if item.is_sweep_override() or item.key_or_group == "sweep.points")
    return next((axis.key_or_group for axis in axes), None)


def _folder(config_dir: Folder | None) -> str | None:
    """`config_dir` as text. InputError where the current folder is gone, to which all is relative."""
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise InputError("the current folder no longer exists; os.chdir to one that does") from error
    return None if config_dir is None else os.fspath(config_dir)


def _refuse_for_command(plan: Plan) -> None:
    if plan.existing:
        raise ConfigError("to go on with a run: slurmopt.find(RUN).retry()", "launch.run")
    if plan.job.settings.launch.dry_run:
        raise ConfigError("prints, and returns no run; in a shell: slurmopt launch …", "launch.dry_run")
