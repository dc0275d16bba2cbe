"""Runs the application's script again in its jobs, as `__mp_main__`, like multiprocessing in a spawned process.

`__main__` is then that module: pickles, Pool.map and postponed annotations find the names of the script in it, and each
class exists once. Blocks under `if __name__ == "__main__"` do not run.
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
    """The script and arguments with which the application was started."""

    path: str
    module: str | None
    """The name of the module if it was started by `python -m module`."""
    argv: list[str]

    @classmethod
    def of_this_process(cls) -> Script | None:
        """Returns the script of this process; None for `python -c`, an interactive Python or a notebook, which cannot
        be run again."""
        main = sys.modules["__main__"]
        path = getattr(main, "__file__", None)
        if not path or not os.path.isfile(path):
            return None
        return cls(os.path.abspath(path), getattr(main.__spec__, "name", None), sys.argv)


def run(script: Script, place: Callable[[str], str]) -> None:
    """Runs the script as the `__main__` of this process. `place` maps a path of the launch to a path in the job. Raises
    the exceptions of the script."""
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
"""References to the previous `__main__`, whose functions still run; without them Python would clear the module."""


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
    """Adds the globals of `function`, which was pickled by value, that `__main__` lacks: those defined in the
    script's `__main__` block."""
    if getattr(function, "__module__", None) == "__main__":
        for name, value in getattr(function, "__globals__", {}).items():
            vars(sys.modules["__main__"]).setdefault(name, value)


class _Called(BaseException):
    """Raised if the script calls its main function without `if __name__ == "__main__"`, to end its execution there."""


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
    """Pickles functions and classes of `__main__` by reference if they can be found by name, and all else like
    cloudpickle. Raises the exceptions of cloudpickle."""
    import cloudpickle

    class ByName(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            name = _name(value)
            return super().reducer_override(value) if name is None else (_find, name)

    file = io.BytesIO()
    ByName(file).dump(value)
    return file.getvalue()


def _name(value: Any) -> tuple[str, int] | None:
    """Returns the qualified name of a function or class in `__main__` and the number of its decorators there; None if
    it cannot be found by name."""
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
