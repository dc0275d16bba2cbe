"""Checks that the function `task._target_` exists, from the source file of its module, without importing it."""

from __future__ import annotations

import ast
import importlib.machinery
import sys
from pathlib import Path

from slurmopt.config.check import did_you_mean
from slurmopt.errors import ConfigError

KEY = "task._target_"


def check_target(target: str, workdir: Path) -> None:
    """Raises ConfigError if the job could not import `package.module.function` from `workdir`."""
    module, _, function = target.rpartition(".")
    if not module or not all(part.isidentifier() for part in target.split(".")):
        raise ConfigError(f"{target!r} is not package.module.function", KEY)
    source = _source(module, [str(workdir), *sys.path])
    if source is None:  # compiled, frozen or a namespace: it cannot be checked without an import
        return
    names = _names(source)
    if function not in names and "*" not in names and "__getattr__" not in names:
        raise ConfigError(f"{source} has no {function!r}{did_you_mean(function, names)}", KEY)


def _source(module: str, path: list[str]) -> Path | None:
    """Returns the source file of a module; None if it has none. Raises ConfigError if the module does not exist."""
    search: list[str] = path
    origin: str | None = None
    parts = module.split(".")
    for index, part in enumerate(parts):
        spec = importlib.machinery.PathFinder.find_spec(part, search) or _special(part, index)
        if spec is None:
            missing = ".".join(parts[: index + 1])
            raise ConfigError(f"there is no module {missing!r} in {path[0]} or on sys.path", KEY)
        search = list(spec.submodule_search_locations or [])
        origin = spec.origin
    return Path(origin) if origin and origin.endswith(".py") else None


def _special(part: str, index: int) -> importlib.machinery.ModuleSpec | None:
    """Finds top-level modules that are not in a folder of sys.path: builtins, and those of editable installations."""
    if index:
        return None
    specs = (finder.find_spec(part, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next((spec for spec in specs if spec is not None), None)


def _names(source: Path) -> set[str]:
    """Returns the names that a module binds, including `*` for a star import."""
    try:
        tree = ast.parse(source.read_bytes(), filename=str(source))
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{source} cannot be parsed: {error}", KEY) from error
    except OSError as error:
        raise ConfigError(f"{source} cannot be read: {error.strerror}", KEY) from error
    return {name for statement in ast.walk(tree) for name in _bound(statement)}


def _bound(statement: ast.AST) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).split(".")[0] for alias in statement.names]
    if isinstance(statement, ast.Name) and isinstance(statement.ctx, ast.Store):
        return [statement.id]
    return []
