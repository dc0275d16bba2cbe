"""Promises to those who import slurmopt: its names, what an import costs, the error tree."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib import import_module

import pytest

import slurmopt
from slurmopt import errors


def test_every_exported_name_is_there_and_documented() -> None:
    for name in slurmopt.__all__:
        assert (getattr(slurmopt, name).__doc__ or "").strip(), name
    with pytest.raises(AttributeError, match="has no attribute 'progres'"):
        _ = slurmopt.progres  # type: ignore[attr-defined]


def test_importing_slurmopt_imports_nothing_else() -> None:
    code = (
        "import sys, json; old = set(sys.modules); import slurmopt; print(json.dumps(sorted(set(sys.modules) - old)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, env={"PYTHONPATH": _home()}
    )
    new = set(json.loads(done.stdout)) - {"json", "typing"}
    assert {name for name in new if name.startswith("slurmopt")} == {"slurmopt", "slurmopt.old_names"}
    assert not {"torch", "hydra", "omegaconf"} & new


def _home() -> str:
    return str(__import__("pathlib").Path(slurmopt.__file__).parent.parent)


def test_the_error_tree_is_the_one_drawn() -> None:
    drawn = errors.__doc__ or ""
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, Exception):
            assert name in drawn
            assert issubclass(kind, errors.SlurmoptError)
    assert errors.ConfigError("x").exit_status == 2
    assert errors.SlurmUnreachable("x").exit_status == 1


@pytest.mark.parametrize("home", ["slurmopt.checkpoint", "slurmopt.training"])
def test_a_name_that_another_module_exports_is_told_with_that(home: str) -> None:
    for name in import_module(home).__all__:
        with pytest.raises(ImportError, match=f"from {home} import {name}$"):
            getattr(slurmopt, name)
