"""Composes the config of a launch with Hydra: the schema is one node, and the user's folder has precedence.

Hydra's own entry point is not used: it composes twice, exits with status 1 on an invalid config, logs to standard
output and creates an `outputs/` folder. It still handles `--cfg`, `--help` and `--info` (`slurmopt.launch`).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import AnyNode, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from slurmopt.config.composition.error_messages import translate
from slurmopt.config.composition.shipped import shipped
from slurmopt.config.composition.stored_yaml import MISFITS, not_allowed
from slurmopt.config.schema import GROUPS
from slurmopt.config.task_command.words import split_words
from slurmopt.errors import ConfigError, one_line

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath

PRIMARY = "slurmopt"
"""The name of the primary config. It is not `config`, a name that is common in users' own folders."""
_SEXAGESIMAL = re.compile(r"[-+]?[0-9]+(:[0-9]+)+")


def user_folder(config_dir: str | None) -> Path | None:
    """Returns the user's config folder: `--config-dir`, else `conf/` in the current directory, else None.

    Raises ConfigError if the folder cannot be read."""
    if config_dir is not None:
        folder = Path(config_dir).absolute()
        if not os.path.isdir(folder):
            raise ConfigError(f"{config_dir!r} is not a folder, or you may not read it", "--config-dir")
        return folder
    folder = Path("conf").absolute()
    if folder.is_symlink() and not folder.exists():
        raise ConfigError("is a broken link", str(folder))
    if not folder.is_dir() or _same(folder, shipped("conf")):
        return None
    if not os.access(folder, os.R_OK | os.X_OK):  # Hydra would ignore it and use the shipped configs
        raise ConfigError("you may not read it", str(folder))
    return folder


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def search_path(config_dir: str | None) -> ConfigSearchPath:
    """Returns Hydra's search path for a launch: the user's folder, then the shipped one."""
    path = create_config_search_path(str(shipped("conf")))
    put_user_folder_first(path, user_folder(config_dir))
    return path


def put_user_folder_first(path: ConfigSearchPath, folder: Path | None) -> None:
    """Prepends `folder` to the search path, so that its configs take precedence over shipped ones of the same name."""
    if folder is not None:
        path.prepend("user", f"file://{folder}", SearchPathQuery(provider="main"))


def register_schema() -> None:
    """Stores the typed groups in Hydra's ConfigStore, as one node with an untyped root."""
    store = ConfigStore.instance()
    store.store(name="slurmopt_schema", node={name: OmegaConf.structured(group) for name, group in GROUPS.items()})


@contextlib.contextmanager
def hydra_session(config_dir: str | None = None) -> Iterator[Hydra]:
    """Yields a Hydra object with `search_path(config_dir)` and the schema; clears the global Hydra state on exit."""
    register_schema()
    GlobalHydra.instance().clear()
    with careful_yaml():
        yield Hydra.create_main_hydra2("slurmopt", search_path(config_dir))
    GlobalHydra.instance().clear()


@contextlib.contextmanager
def careful_yaml() -> Iterator[None]:
    """Changes yaml.SafeLoader within the context in two ways.

    `time: 10:00:00` is text; YAML 1.1 reads it as the number 36000, which Slurm would interpret as minutes. A value
    that is invalid for its tag, such as `!!bool maybe`, raises a YAMLError with the position."""
    loader: Any = yaml.SafeLoader
    resolvers, construct = loader.yaml_implicit_resolvers, loader.construct_object
    loader.yaml_implicit_resolvers = {
        first: [(tag, _without_clock(tag, pattern)) for tag, pattern in pairs] for first, pairs in resolvers.items()
    }

    def constructed(self: yaml.SafeLoader, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return construct(self, node, deep)
        except MISFITS as error:
            raise not_allowed(node) from error

    loader.construct_object = constructed
    try:
        yield
    finally:
        loader.yaml_implicit_resolvers, loader.construct_object = resolvers, construct


def _without_clock(tag: str, pattern: Any) -> Any:
    if tag != "tag:yaml.org,2002:int":
        return pattern
    return re.compile(f"(?!{_SEXAGESIMAL.pattern}$)(?:{pattern.pattern})", re.VERBOSE)


def compose(overrides: list[str], config_dir: str | None = None) -> DictConfig:
    """Returns the composed config including Hydra's own node, without resolving interpolations; `task.command` is a
    list of words.

    Raises ConfigError with a message of one line for any error in the configs or the overrides.
    """
    with hydra_session(config_dir) as hydra, compose_errors(config_dir):
        return compose_with(hydra, overrides)


def compose_with(hydra: Hydra, overrides: list[str]) -> DictConfig:
    """Composes like `compose` in an existing `hydra_session`, for several configs. Raises Hydra's errors."""
    config = hydra.compose_config(config_name=PRIMARY, overrides=overrides, run_mode=RunMode.RUN, from_shell=False)
    _refuse_without_package(config)
    split_command(config)
    return config


def _refuse_without_package(config: DictConfig) -> None:
    """Raises ConfigError for an experiment without `# @package _global_`, whose groups are then below `experiment`."""
    name, node = config.hydra.runtime.choices.get("experiment"), config.get("experiment")
    if name and isinstance(node, DictConfig) and (misplaced := [key for key in node if key in GROUPS]):
        raise ConfigError(
            f"its key {misplaced[0]!r} would be experiment.{misplaced[0]}; its first line must be: # @package _global_",
            f"experiment/{name}.yaml",
        )


@contextlib.contextmanager
def compose_errors(config_dir: str | None) -> Iterator[None]:
    """Converts errors of Hydra, OmegaConf and YAML to a ConfigError with a message of one line."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise translate(error) from error
    except YAMLError as error:
        raise ConfigError(f"not valid YAML: {one_line(' '.join(str(error).split()))}") from error
    except RecursionError as error:
        raise ConfigError("the configs refer to each other in a circle, or are nested too deeply") from error
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename or 'a config'}: {(error.strerror or '').lower()}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"not valid UTF-8: {', '.join(_not_utf8(user_folder(config_dir)))}") from error
    except OverflowError as error:  # of a whole number that no float can hold
        key = getattr(error, "full_key", None)
        raise ConfigError("is too large for a number with decimals", key) from error
    except (ValueError, TypeError, AssertionError) as error:  # raised by Hydra if a group choice is a number or null
        raise ConfigError(one_line(str(error).partition("\n")[0]) or type(error).__name__) from error


def _not_utf8(folder: Path | None) -> list[str]:
    """Returns the config files that are not valid UTF-8; Hydra's error does not name them."""
    undecodable = []
    for path in (path for path in sorted(folder.rglob("*.yaml")) if path.is_file()) if folder else ():
        try:
            path.read_bytes().decode()
        except UnicodeDecodeError as error:
            undecodable.append(f"{path} (byte {error.start})")
    return undecodable


def split_command(config: DictConfig) -> None:
    """Splits a `task.command` or `notify.command` that is a string into a list of words, in place."""
    for name in ("task", "notify"):
        group = config.get(name)
        node = group._get_node("command") if isinstance(group, DictConfig) else None
        if isinstance(node, AnyNode) and isinstance(text := node._value(), str):
            group.command = split_words(text, f"{name}.command")
