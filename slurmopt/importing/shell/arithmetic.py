"""Shell arithmetic on whole numbers: `$((ID % 3 + 1))`, and the index of `${LRS[ID]}`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

_LARGEST = 1 << 62


class NotPlain(ValueError):
    """Something other than + - * / % and parentheses on whole numbers and variables."""


def names_in(text: str) -> list[str]:
    """The variables of an expression, with or without `$`."""
    return re.findall(r"[A-Za-z_]\w*", text)


def evaluate(text: str, value_of: Callable[[str], str]) -> int:
    """The value of an expression, as bash computes it. Raises NotPlain, also for what is too large."""
    plain = re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda match: match[1] or match[2], text.strip().strip('"'))
    plain = plain.replace("$((", "((")
    if len(plain) > 200 or not re.fullmatch(r"[\w\s+\-*/%()]+", plain) or "**" in plain or "//" in plain:
        raise NotPlain(text)
    try:
        return _value(ast.parse(plain.strip().replace("/", "//"), mode="eval").body, value_of)
    except (SyntaxError, ZeroDivisionError, RecursionError, ValueError) as error:
        raise NotPlain(text) from error


def _value(node: ast.expr, value_of: Callable[[str], str]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        text = value_of(node.id)
        if not re.fullmatch(r"-?(0|[1-9]\d{0,15})", text):
            raise NotPlain(text)
        return int(text)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _value(node.operand, value_of)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        return _operation(node.op, _value(node.left, value_of), _value(node.right, value_of))
    raise NotPlain(ast.dump(node))


def _operation(kind: ast.operator, left: int, right: int) -> int:
    if isinstance(kind, ast.Add):
        value = left + right
    elif isinstance(kind, ast.Sub):
        value = left - right
    elif isinstance(kind, ast.Mult):
        value = left * right
    elif isinstance(kind, ast.FloorDiv):  # bash rounds towards zero
        value = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    elif isinstance(kind, ast.Mod):
        value = left - right * _operation(ast.FloorDiv(), left, right)
    else:
        raise NotPlain(str(kind))
    if abs(value) > _LARGEST:
        raise NotPlain("too large")
    return value
