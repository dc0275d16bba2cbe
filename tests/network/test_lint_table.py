"""The tables: each entry is whole, and torch's names are all there."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from slurmopt.network.lint.names import NAME
from slurmopt.network.lint.table import FOLDER, LIBRARIES, UNKNOWN, table
from slurmopt.network.lint.values import KINDS, wrong_value
from slurmopt.network.lint.versions import TITLES
from slurmopt.network.versions import parse

ALL = list(table().variables.values())
VERDICTS = {"fail", "warn"}


def test_each_entry_is_whole() -> None:
    for variable in ALL:
        assert NAME.fullmatch(variable.name)
        assert variable.kind in KINDS, variable.name
        assert variable.means, variable.name
        assert variable.source is None or variable.source.startswith("https://"), variable.name
        assert variable.replaced_by is None or variable.replaced_by in table().variables, variable.name
        assert {variable.invalid, variable.removed_verdict} <= VERDICTS, variable.name
        assert set(variable.mend) <= {"removed", "deprecated", "value"}, variable.name
        for version in (variable.since, variable.deprecated, variable.removed, *variable.words_since.values()):
            assert version in (None, UNKNOWN) or parse(version), variable.name


def test_each_list_of_words_is_valid() -> None:
    for variable in ALL:
        has_words = variable.kind in ("words", "path_type", "functions") or variable.name == "NCCL_NTHREADS"
        assert bool(variable.words) == has_words, variable.name
        assert set(variable.words_since) <= set(variable.words), variable.name
        assert [word for word in variable.words if wrong_value(variable, word) is not None] == [], variable.name


def test_each_problem_is_whole() -> None:
    problems = [problem for variable in ALL for problem in variable.problems]
    assert len(problems) > 30
    for problem in problems:
        assert problem.what
        assert problem.mend, problem.what
        assert problem.verdict in VERDICTS, problem.what
        assert problem.when in ("any", "enabled", "disabled"), problem.what
        assert problem.matches is None or re.compile(problem.matches)
        assert set(problem.versions) <= set(TITLES), problem.what
        assert problem.unless is None or problem.unless in table().variables


def test_contradictions_name_variables_that_are_there() -> None:
    known = table().variables
    for one in table().contradictions:
        assert set(one.conditions) <= set(known), one.what
        assert set(one.beside) <= set(known), one.what
        for condition in one.conditions.values():
            assert re.compile(condition)
    pairs = [*table().ordered, *(names for names, _ in table().products)]
    assert {name for pair in pairs for name in pair} <= set(known)


def test_no_library_has_a_name_of_another() -> None:
    names = [
        name for library in LIBRARIES for name in yaml.safe_load((FOLDER / f"{library}.yaml").read_text())["variables"]
    ]
    assert len(names) == len(set(names)) > 250


def names_in(library: Path) -> Iterator[str]:
    """The names that stand between NUL characters."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for start in (b"\0TORCH_", b"\0GLOO_"):
            place = data.find(start)
            while place >= 0:
                end = data.find(b"\0", place + 1)
                word = data[place + 1 : min(end, place + 200)]
                if re.fullmatch(rb"(TORCH_(NCCL|FR|GLOO)|GLOO)_[A-Z0-9_]+", word):
                    yield word.decode()
                place = data.find(start, end)


def test_the_table_knows_all_names_of_the_installed_torch() -> None:
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        pytest.skip("torch is not installed")
    folder = Path(spec.origin).parent
    names = set(names_in(folder / "lib" / "libtorch_cpu.so"))
    for header in (folder / "include" / "torch" / "csrc" / "distributed" / "c10d").glob("*.hpp"):
        names |= set(
            re.findall(r'"((?:TORCH_NCCL|TORCH_FR|NCCL|GLOO)_[A-Z0-9_]+)"', header.read_text(encoding="utf-8"))
        )
    assert len(names) > 30
    assert sorted(names - set(table().variables)) == []
