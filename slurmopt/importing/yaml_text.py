"""A config as YAML that a person would write: plain scalars where they are safe, comments beside the keys."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from slurmopt.importing.points import keeps_its_text

_PLAIN = re.compile(r"[A-Za-z0-9_./$\\-][\w./$\\{}:=,@+%()^*~\"'|&;!?<>\[\] -]*", re.ASCII)
_WIDTH = 100


class Number(str):
    """Text that is a number for YAML, too: written without quotes, as it is."""


def document(config: Mapping[str, Any], heading: list[str], comments: Mapping[str, str]) -> str:
    """The text of a config. `comments`: dotted key → what stands behind it."""
    lines = ["# @package _global_", *(f"# {line}" for line in heading)]
    group = True
    for key, value in config.items():
        if group or isinstance(value, dict):
            lines.append("")
        group = isinstance(value, dict)
        lines += _entry(key, value, 0, (key,), comments)
    return "\n".join(lines) + "\n"


def _entry(key: str, value: Any, depth: int, path: tuple[str, ...], comments: Mapping[str, str]) -> list[str]:
    indent, comment = "  " * depth, comments.get(".".join(path), "")
    behind = f"  # {comment}" if comment else ""
    if isinstance(value, dict):
        inner = [
            line for name, item in value.items() for line in _entry(name, item, depth + 1, (*path, name), comments)
        ]
        return [f"{indent}{scalar(key)}:{behind}" if inner else f"{indent}{scalar(key)}: {{}}{behind}", *inner]
    if isinstance(value, list) and all(isinstance(item, list) for item in value):
        rows = ", ".join(f"[{', '.join(map(scalar, row))}]" for row in value)
        return [f"{indent}{scalar(key)}: [{rows}]{behind}"]
    if isinstance(value, list):
        return [f"{indent}{scalar(key)}:{behind}", *(f"{indent}  - {scalar(item)}" for item in value)]
    if isinstance(value, str) and len(value) > _WIDTH and _foldable(value):
        return [f"{indent}{scalar(key)}: >-{behind}", *(f"{indent}  {line}" for line in _folded(value))]
    return [f"{indent}{scalar(key)}: {scalar(value)}{behind}"]


def scalar(value: Any) -> str:
    """One value."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, (int, float, Number)):
        return str(value)
    text = str(value)
    if not text.isprintable():
        return json.dumps(text)
    if _PLAIN.fullmatch(text) and not _is_special(text):
        return text
    if "'" in text and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return "'" + text.replace("'", "''") + "'"


def _is_special(text: str) -> bool:
    """Whether YAML would read the text as something else: a number, a time, a key, a comment, an entry of a list."""
    if re.match(r"[\d.+-]", text) and re.fullmatch(r"[\d.:eE+_xob-]+|[.+-]*(inf|nan|NaN|Inf|INF|NAN)", text):
        return True
    return (
        bool(re.search(r": | #|:$|^-+ |^-$|^---|^\.\.\.", text))
        or text != text.strip()
        or not keeps_its_text(text, True)
    )


def _foldable(text: str) -> bool:
    """Whether line breaks between its words, and only those, are its single spaces."""
    return (
        text.isprintable()
        and "  " not in text
        and not re.search(r"[\"'] | [\"']", text)
        and "'" not in text
        and '"' not in text
    )


def _folded(text: str) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) >= _WIDTH - 10:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
