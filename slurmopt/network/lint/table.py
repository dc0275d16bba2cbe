"""The table of variables, from `slurmopt/network/variables/*.yaml`; docs/network.md describes its fields."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from slurmopt.config.composition import stored_yaml
from slurmopt.network.lint.setting import WARN

FOLDER = Path(__file__).resolve().parents[1] / "variables"
LIBRARIES = ("nccl", "torch", "aws_ofi_nccl", "libfabric")
UNKNOWN = "unknown"
"""A variable is removed or deprecated, but nothing says since when."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Values with which something is wrong."""

    what: str
    mend: str
    verdict: str = WARN
    when: str = "any"
    """`any`, `enabled` or `disabled`; with `matches`, it is not used."""
    matches: str | None = None
    """A pattern for the whole value."""
    versions: dict[str, str] = field(default_factory=dict)
    """Field → range for which this holds; a version that is not known is taken to be in it."""
    only_known: bool = False
    """A version that is not known is taken to be outside."""
    unless: str | None = None
    """A variable that makes it right."""
    source: str | None = None


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A variable that a library reads."""

    name: str
    library: str
    kind: str
    means: str
    words: tuple[str, ...] = ()
    words_since: dict[str, str] = field(default_factory=dict)
    range: tuple[float | None, float | None] = (None, None)
    list: bool = False
    negatable: bool = False
    since: str | None = None
    deprecated: str | None = None
    removed: str | None = None
    removed_verdict: str = WARN
    removed_what: str | None = None
    replaced_by: str | None = None
    invalid: str = WARN
    """The verdict for a value that the library does not understand."""
    mend: dict[str, str] = field(default_factory=dict)
    """`removed`, `deprecated`, `value`: what to do instead of what is said of all variables."""
    problems: tuple[Problem, ...] = ()
    documented: bool = True
    source: str | None = None


@dataclass(frozen=True)
class Contradiction:
    """Settings that do not fit together."""

    conditions: dict[str, str]
    beside: tuple[str, ...]
    what: str
    mend: str
    verdict: str


@dataclass(frozen=True)
class Table:
    """All that is known."""

    variables: dict[str, Variable]
    foreign: frozenset[str]
    """Names with one of the prefixes that none of the libraries reads, but other software does."""
    foreign_prefixes: tuple[str, ...]
    contradictions: tuple[Contradiction, ...]
    ordered: tuple[tuple[str, str], ...]
    products: tuple[tuple[tuple[str, str], int], ...]

    def is_foreign(self, name: str) -> bool:
        return name in self.foreign or name.startswith(self.foreign_prefixes)


@cache
def table() -> Table:
    """Reads the table: about 50 ms, so it is read when a variable has been found."""
    files = {name: _load(name) for name in LIBRARIES}
    conflicts = _load("contradictions")
    return Table(
        variables={one.name: one for library, content in files.items() for one in _variables(library, content)},
        foreign=frozenset(name for content in files.values() for name in content.get("foreign", ())),
        foreign_prefixes=tuple(name for content in files.values() for name in content.get("foreign_prefixes", ())),
        contradictions=tuple(map(_contradiction, conflicts["contradictions"])),
        ordered=tuple((low, high) for low, high in conflicts["ordered"]),
        products=tuple(((one["of"][0], one["of"][1]), one["most"]) for one in conflicts["products"]),
    )


def _load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = stored_yaml.load(FOLDER / f"{name}.yaml", exact=False)
    return content


def _variables(library: str, content: dict[str, Any]) -> list[Variable]:
    common = {"library": library, "source": content["source"], "invalid": content["invalid"]}
    made = [_variable(name, {**common, **entry}) for name, entry in content["variables"].items()]
    more = content.get("undocumented", {"names": []})
    return made + [_undocumented(name, library, more) for name in more["names"]]


def _variable(name: str, entry: dict[str, Any]) -> Variable:
    problems = tuple(Problem(**{"source": entry["source"], **one}) for one in entry.get("problems", ()))
    low, high = entry.get("range", (None, None))
    words = tuple(map(str, entry.get("words", ())))
    return Variable(**{**entry, "name": name, "problems": problems, "range": (low, high), "words": words})


def _undocumented(name: str, library: str, more: dict[str, Any]) -> Variable:
    means = "a switch inside the library"
    return Variable(name=name, library=library, kind="free", means=means, documented=False, source=more["source"])


def _contradiction(entry: dict[str, Any]) -> Contradiction:
    conditions = {name: str(condition) for name, condition in entry["if"].items()}
    verdict = entry.get("verdict", WARN)
    return Contradiction(conditions, tuple(entry.get("with", ())), entry["what"], entry["mend"], verdict)


def is_enabled(value: str) -> bool:
    return value.lower() in ("y", "yes", "t", "true", "on") or bool(re.fullmatch(r"[+-]?0*[1-9]\d*", value))


def is_disabled(value: str) -> bool:
    return value.lower() in ("n", "no", "f", "false", "off") or bool(re.fullmatch(r"0+", value))


def holds(condition: str, value: str | None) -> bool:
    """Whether a value is `any`, `enabled`, `disabled`, or matches a pattern as a whole."""
    if condition == "any":
        return True
    if value is None:
        return False
    if condition in ("enabled", "disabled"):
        return (is_enabled if condition == "enabled" else is_disabled)(value)
    return re.fullmatch(condition, value) is not None
