"""Parses `sweep.skip`: a condition on a point's values, such as `${lr} > 1e-3 and ${model} in ['small', 'tiny']`.

It is Python's grammar, of which only what is named here is let through: nothing in it can call, read or reach anything.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from slurmopt.errors import ConfigError, one_line
from slurmopt.grid.point_names import REFERENCE

KEY = "sweep.skip"
_FUNCTIONS = {"len": len, "abs": abs, "min": min, "max": max}
_WORDS = {"true": True, "false": False, "null": None}
_PLACE = "_slurmopt_{}_"
_PLACES = re.compile(r"_slurmopt_(\d+)_")
_ALLOWED: tuple[type[ast.AST], ...] = (
    *(ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),
    *(ast.Constant, ast.List, ast.Tuple, ast.Load),
)
_VALID = "valid: ${key}, literals, < <= == != >= >, and, or, not, in, + - * / // %, len, abs, min, max"


@dataclass(frozen=True)
class Condition:
    """A parsed and checked condition."""

    text: str
    keys: tuple[str, ...]
    """The keys that it reads, each once: the texts between `${` and `}`."""
    _code: CodeType

    def holds(self, values: Sequence[Any]) -> bool:
        """Whether the condition is true for `values`, one for each of `keys`. ConfigError where they cannot be
        compared."""
        names = {_PLACE.format(number): value for number, value in enumerate(values)}
        try:
            # The names are our own, the grammar is checked, and there are no builtins: only arithmetic is possible.
            return bool(eval(self._code, {"__builtins__": {}, **_FUNCTIONS, **_WORDS, **_GUARDS}, names))  # noqa: S307
        except (TypeError, ValueError, ArithmeticError, MemoryError) as error:
            # Types instead of values: a value may be a secret from the environment.
            kinds = ", ".join(f"{key} a {type(value).__name__}" for key, value in zip(self.keys, values, strict=True))
            reason = one_line(str(error)) or type(error).__name__
            raise ConfigError(f"{reason}, with {one_line(kinds)}", KEY) from error


def condition(text: str) -> Condition:
    """Parses a condition. Raises ConfigError that names what is not allowed."""
    keys: list[str] = []

    def place(match: re.Match[str]) -> str:
        if match[1] not in keys:
            keys.append(match[1])
        return f" {_PLACE.format(keys.index(match[1]))} "

    python = REFERENCE.sub(place, text)
    if "_slurmopt_" in text:
        raise ConfigError("has a name that begins with _slurmopt_; a key is written ${key}", KEY)
    if "${" in python:
        raise ConfigError(f"{one_line(text)!r} has a ${{…}} that is not a plain key", KEY)
    try:
        tree = ast.parse(" ".join(python.split("\n")).strip(), mode="eval")
        for node in ast.walk(tree):
            _refuse_others(node)
        code = compile(ast.fix_missing_locations(_Guarded().visit(tree)), KEY, "eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ConfigError(f"{one_line(text)!r} is not a condition: {one_line(reason)}; {_VALID}", KEY) from error
    if not keys:
        raise ConfigError(f"{one_line(text)!r} asks for no key, so it is the same for all points; {_VALID}", KEY)
    return Condition(text, tuple(keys), code)


class _Guarded(ast.NodeTransformer):
    """Turns `*` and `%` into calls that accept only numbers: with text a few characters could become gigabytes."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        name = next((name for kind, name in _OPERATORS.items() if isinstance(node.op, kind)), None)
        if name is None:
            return node
        return ast.Call(ast.Name(name, ast.Load()), [node.left, node.right], [])


def _number(value: Any, operator: str) -> Any:
    if not isinstance(value, (int, float)):
        raise TypeError(f"{operator} is for numbers, not for a {type(value).__name__}")
    return value


_OPERATORS: dict[type[ast.operator], str] = {ast.Mult: "_slurmopt_times", ast.Mod: "_slurmopt_modulo"}
_GUARDS = {
    "_slurmopt_times": lambda one, other: _number(one, "*") * _number(other, "*"),
    "_slurmopt_modulo": lambda one, other: _number(one, "%") % _number(other, "%"),
}


def _refuse_others(node: ast.AST) -> None:
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords:
            _refuse(f"call of {ast.unparse(node.func)!r}")
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            _refuse("'*'")
    elif isinstance(node, ast.Name):
        if not (_PLACES.fullmatch(node.id) or node.id in _FUNCTIONS or node.id in _WORDS):
            _refuse(f"name {node.id!r} (a key is written ${{{node.id}}}, a text in quotes)")
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str) and _PLACES.search(node.value):
            _refuse("${…} in quotes (leave the quotes out)")
        if not isinstance(node.value, (str, int, float, bool, type(None))):
            _refuse(f"{node.value!r}")
    elif not isinstance(node, _ALLOWED):
        _refuse(f"{_shown(node)}")


def _shown(node: ast.AST) -> str:
    operators: dict[type[ast.AST], str] = {
        ast.Pow: "'**'",
        ast.LShift: "'<<'",
        ast.RShift: "'>>'",
        ast.BitOr: "'|'",
        ast.BitAnd: "'&'",
    }
    return operators.get(type(node)) or f"{type(node).__name__.lower()}"


def _refuse(description: str) -> None:
    raise ConfigError(f"{one_line(_PLACES.sub('${…}', description))} is not allowed in a condition; {_VALID}", KEY)
