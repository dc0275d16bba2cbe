"""The application's script in its jobs: run again as `__mp_main__`, as multiprocessing does for a spawned process.

`__main__` is that module then, so that pickles, Pool.map and postponed annotations find the names of the script there,
and each class exists once. The blocks under `if __name__ == "__main__"` do not run.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import os
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from slurmopt.errors import JobError


@dataclass(frozen=True)
class Script:
    """How the application was started."""

    path: str
    module: str | None
    """The module's name, where it was `python -m module`."""
    argv: list[str]

    @classmethod
    def of_this_process(cls) -> Script | None:
        """None where nothing can be run again: `python -c`, a terminal, a notebook."""
        main = sys.modules["__main__"]
        path = getattr(main, "__file__", None)
        if not path or not os.path.isfile(path):
            return None
        return cls(os.path.abspath(path), getattr(main.__spec__, "name", None), sys.argv)


def run(script: Script, place: Callable[[str], str]) -> None:
    """Makes the script this process's `__main__`. `place` tells where a file is in the job. Raises what it raises."""
    module = types.ModuleType("__mp_main__")
    code = _of_module(script.module, module) if script.module else _of_file(place(script.path), module)
    _before.append(sys.modules["__main__"])
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    argv, sys.argv = sys.argv, script.argv
    try:
        with contextlib.suppress(_Called), _application_not_started():
            exec(code, module.__dict__)  # noqa: S102 - the user's own script
    finally:
        sys.argv = argv


_before: list[types.ModuleType] = []
"""Keeps the former `__main__`, whose functions still run, from being emptied."""


def _of_file(path: str, module: types.ModuleType) -> types.CodeType:
    module.__file__ = path
    with io.open_code(path) as file:
        return compile(file.read(), path, "exec")


def _of_module(name: str, module: types.ModuleType) -> types.CodeType:
    spec = importlib.util.find_spec(name)
    code = spec.loader.get_code(name) if spec is not None and hasattr(spec.loader, "get_code") else None  # type: ignore[union-attr]
    if spec is None or code is None:
        raise JobError(f"the application was started by python -m {name}, and the job's Python finds no such module")
    module.__spec__, module.__loader__, module.__package__ = spec, spec.loader, spec.parent
    module.__file__ = spec.origin
    assert isinstance(code, types.CodeType)
    return code


def complete(function: Any) -> None:
    """Gives the script the names that it lacks now and `function`, pickled by value, needs: they come from its
    `__main__` block."""
    if getattr(function, "__module__", None) == "__main__":
        for name, value in getattr(function, "__globals__", {}).items():
            vars(sys.modules["__main__"]).setdefault(name, value)


class _Called(BaseException):
    """The script calls its main function without `if __name__ == "__main__"`: most of it has run."""


@contextlib.contextmanager
def _application_not_started() -> Iterator[None]:
    import hydra

    module: Any = sys.modules[hydra.main.__module__]
    before = module.get_args_parser
    module.get_args_parser = _refuse
    try:
        yield
    finally:
        module.get_args_parser = before


def _refuse() -> None:
    raise _Called


def dumps(value: Any) -> bytes:
    """A pickle that has functions and classes of `__main__` by name where they can be found by it, and otherwise all
    that cloudpickle would put in. Raises what cloudpickle raises."""
    import cloudpickle

    class ByName(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            name = _name(value)
            return super().reducer_override(value) if name is None else (_find, name)

    file = io.BytesIO()
    ByName(file).dump(value)
    return file.getvalue()


def _name(value: Any) -> tuple[str, int] | None:
    """Its name in `__main__`, and how many decorators are around it there; None where it has none."""
    if not isinstance(value, (type, types.FunctionType)) or value.__module__ != "__main__":
        return None
    try:
        candidate = attrgetter(value.__qualname__)(sys.modules["__main__"])
    except AttributeError:
        return None
    wrappers = 0
    while candidate is not value and hasattr(candidate, "__wrapped__"):
        candidate, wrappers = candidate.__wrapped__, wrappers + 1
    return (value.__qualname__, wrappers) if candidate is value else None


def _find(name: str, wrappers: int) -> Any:
    value = attrgetter(name)(sys.modules["__main__"])
    return functools.reduce(lambda outer, _: outer.__wrapped__, range(wrappers), value)
