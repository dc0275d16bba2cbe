"""Variables that a shell script sets: `export X=…`, `X=… command`, `#SBATCH --export=`, `srun --export=`, `env X=…`,
`mpirun -x X=…`, `docker run -e X=…`, `bash -c '…'`.

The syntax tree is looked at only where a name of ours stands before a `=`, and built only in files that have one.
"""

from __future__ import annotations

import re
import time
from functools import cache
from typing import TYPE_CHECKING

from slurmopt.errors import InputError
from slurmopt.network.lint.names import PATTERN
from slurmopt.network.lint.setting import Setting

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_ASSIGNED = re.compile(PATTERN.encode() + rb"(?=\+?=)")
_IN_TEXT = re.compile(rf"({PATTERN})=(.*)", re.DOTALL)
_DEFAULT = re.compile(r"\$\{\w+:?-([^${}\"']*)\}")
_LITTLE = ("echo", "printf", "grep", "egrep", "sed", "awk", "unset", "test", "[", "[[", "logger", "log")
"""Commands whose arguments only talk of variables."""
_DEEPEST = 3
"""Scripts in quotes within scripts in quotes."""
_HIGHEST = 50
"""Nodes of the syntax tree from a name up to its command. Each step up starts at the root."""
_SECONDS = 10.0
"""For one script: somebody may make one that takes hours."""


def settings(text: str, place: str, first_line: int = 1, depth: int = 0) -> list[Setting]:
    """The variables that a script sets, in its order."""
    source = text.encode("utf-8", "surrogateescape")
    matches = list(_ASSIGNED.finditer(source))
    if not matches:
        return []
    root, found, seen = _parser().parse(source).root_node, [], set()
    end = time.monotonic() + _SECONDS
    for match in matches:
        if time.monotonic() > end:
            raise InputError(f"{place}: takes too long to read: over {_SECONDS:g} s; is it a script?")
        node = _around(root.descendant_for_byte_range(match.start(), match.end() - 1), match)
        if node is not None and node.start_byte not in seen:  # two matches may lie in one quoted script
            seen.add(node.start_byte)
            found += _of(node, match, place, first_line, depth)
    return found


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _around(node: Node | None, match: re.Match[bytes]) -> Node | None:
    """The comment, assignment or argument that has a match in it; None where there is none, as in a here-document."""
    for _ in range(_HIGHEST):
        if node is None or node.type in ("heredoc_body", "heredoc_content"):
            return None
        is_assignment = node.type == "variable_assignment" and node.start_byte == match.start()
        if node.type == "comment" or is_assignment or (node.parent is not None and node.parent.type == "command"):
            return node
        node = node.parent
    return None


def _of(node: Node, match: re.Match[bytes], place: str, first_line: int, depth: int) -> list[Setting]:
    """The settings in what `_around` found."""
    line = node.start_point[0] + first_line
    if node.type == "comment":
        return _directive(_source(node), place, line)
    if node.type == "variable_assignment" and node.start_byte == match.start():
        return [Setting(match[0].decode(), _assigned(node), place, line)]
    assert node.parent is not None
    return _argument(node, node.parent, place, first_line, depth)


def _assigned(node: Node) -> str | None:
    value = node.child_by_field_name("value")
    if any(child.type == "+=" for child in node.children):
        return None
    return "" if value is None else _static(value)


def _argument(node: Node, command: Node, place: str, first_line: int, depth: int) -> list[Setting]:
    """Of a word behind a command: `--export=ALL,X=1`, `X=1` of env, a script in quotes."""
    name = command.child_by_field_name("name")
    if name is not None and _source(name).rpartition("/")[2] in _LITTLE:
        return []
    text, line = _source(node), node.start_point[0] + first_line
    inner = text[1:-1] if node.type in ("string", "raw_string") else ""
    before = "" if node.prev_sibling is None else _source(node.prev_sibling)
    is_script = re.fullmatch(r"-[a-zA-Z]*c", before) is not None
    if (is_script or (re.search(r"[\s;]", inner) and _IN_TEXT.fullmatch(inner) is None)) and depth < _DEEPEST:
        return settings(inner, place, line, depth + 1)
    static = _static(node)
    word = text if static is None else static
    return _of_word(f"--export={word}" if before == "--export" else word, place, line)


def _of_word(text: str, place: str, line: int) -> list[Setting]:
    """`X=1`, or `--export=ALL,X=1,Y=2`, which Slurm splits at each comma."""
    words = text.removeprefix("--export").lstrip("=").split(",") if text.startswith("--export") else [text]
    found = []
    for word in words:
        match = _IN_TEXT.search(word)
        if match is not None:
            value = match[2].strip("\"'")
            found.append(Setting(match[1], None if "$" in value or "`" in value else value, place, line))
    return found


def _directive(comment: str, place: str, line: int) -> list[Setting]:
    match = re.match(r"#SBATCH\s.*?(--export=\S+)", comment)
    return [] if match is None else _of_word(match[1], place, line)


def _static(node: Node) -> str | None:
    """The text of a word where a shell would not change it, or the default of `${X:-default}`; else None."""
    text = _source(node)
    default = _DEFAULT.fullmatch(text[1:-1] if node.type == "string" else text)
    if default is not None:
        return default[1]
    if node.type == "raw_string":
        return text[1:-1]
    if node.type == "string":
        return None if "$" in text or "`" in text else text[1:-1]
    if node.type == "concatenation":
        parts = [_static(child) for child in node.children]
        return None if None in parts else "".join(part for part in parts if part is not None)
    if node.type in ("word", "number") or not node.named_children:
        return None if text[:1] == "~" or "$" in text else re.sub(r"\\(.)", r"\1", text)
    return None


def _source(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "surrogateescape")
