"""The statements of a shell script, from the syntax tree of tree-sitter. Nothing is executed or expanded.

What is not listed here (loops, functions, here-documents, pipes, `&&`, background commands) is a statement of the kind
OTHER, whose `text` is all that is known of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

ASSIGN, EXPORT, COMMAND, OTHER = "assign", "export", "command", "other"
_WHY = {
    "if_statement": "if",
    "for_statement": "a loop",
    "c_style_for_statement": "a loop",
    "while_statement": "a loop",
    "case_statement": "case",
    "function_definition": "a function",
    "pipeline": "a pipe",
    "list": "&& or ||",
    "subshell": "a subshell",
    "compound_statement": "a group of commands",
    "negated_command": "!",
    "test_command": "a test",
    "heredoc_redirect": "a here-document",
    "herestring_redirect": "a here-string",
    "file_redirect": "a redirection",
    "unset_command": "unset",
}
_ESCAPED = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


@dataclass(frozen=True)
class Part:
    """A piece of a word."""

    kind: str
    """`text`, `variable` (`$NAME`, `${NAME}`, `${NAME[index]}`), `arithmetic` (`$((…))`), `output` (`$(…)`), or
    `other`, which only a shell can expand."""
    text: str
    """The text itself without quotes, the name of the variable, the expression, the command, or the source."""
    quoted: bool = False
    """Whether the shell leaves it one word."""
    index: str | None = None
    """Of `${NAME[index]}`."""


Word = tuple[Part, ...]


@dataclass(frozen=True)
class Statement:
    """A statement at the top level of the script."""

    kind: str
    line: int
    text: str
    """As it is written, over several lines where it has them."""
    why: str = ""
    """Of OTHER: what it is, for a person."""
    assigned: tuple[tuple[str, Word | list[Word] | None], ...] = ()
    """Names with a value, a list of values, or None (`export NAME`); of COMMAND those before the program."""
    words: tuple[Word, ...] = ()
    """Of COMMAND."""
    sources: tuple[str, ...] = ()
    """The words, or the assignments of EXPORT, as they are written."""
    redirected: bool = False


def statements(text: str) -> list[Statement]:
    """The statements of a script, in their order. Comments are left out."""
    import tree_sitter
    import tree_sitter_bash

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    root = parser.parse(text.encode("utf-8", "surrogateescape")).root_node
    if (braced := _braced(root)) is not None:
        root = parser.parse(braced).root_node
    found: list[Statement] = []
    for node in root.children:
        if node.type == "&" and found:
            found[-1] = _other(node, "a command in the background", found[-1])
        elif node.type not in ("comment", ";", ";;", "\n"):
            found.append(_statement(node))
    return found


def _braced(root: Node) -> bytes | None:
    """The script with `${NAME}` for each `$NAME` that the grammar cuts off: to it, the end of `${A}_$NAME.json` is
    another word. None if there is none."""
    text, ends, nodes = root.text or b"", [], [root]
    while nodes:
        node = nodes.pop()
        nodes += node.children
        if node.type == "$" and node.parent is not None and node.parent.type == "concatenation":
            ends.append(node.end_byte)
    for end in sorted(ends, reverse=True):
        text = text[:end] + re.sub(rb"^[A-Za-z_]\w*", rb"{\g<0>}", text[end:], count=1)
    return text if ends else None


def _statement(node: Node) -> Statement:
    if node.has_error:
        return _other(node, "something that is no valid bash")
    if node.type == "variable_assignment":
        return _made(node, ASSIGN, assigned=(_assigned(node),))
    if node.type == "variable_assignments":
        return _made(node, ASSIGN, assigned=tuple(_assigned(child) for child in node.named_children))
    if node.type == "declaration_command":
        return _declaration(node)
    if node.type == "command":
        return _command(node)
    if node.type == "redirected_statement":
        return _redirected(node)
    if node.type == "list":
        return _or_exit(node)
    return _other(node, _WHY.get(node.type, f"{node.type.replace('_', ' ')}"))


def _made(node: Node, kind: str, **more: object) -> Statement:
    return Statement(kind, node.start_point[0] + 1, _source(node), **more)  # type: ignore[arg-type]


def _other(node: Node, why: str, whole: Statement | None = None) -> Statement:
    line, text = (whole.line, whole.text + " &") if whole else (node.start_point[0] + 1, _source(node))
    return Statement(OTHER, line, text, why)


def _redirected(node: Node) -> Statement:
    """A command with `> file`; here-documents and others are beyond this."""
    inner, kinds = node.children[0], {child.type for child in node.children[1:]}
    if inner.type == "command" and kinds == {"file_redirect"}:
        held = _command(inner)
        return replace(held, text=_source(node), redirected=True)
    unusual = sorted(kinds - {"file_redirect"})
    return _other(node, next((_WHY[kind] for kind in unusual if kind in _WHY), "a redirection"))


def _or_exit(node: Node) -> Statement:
    """`cd "$DIR" || exit 1` is a command that must not fail; other lists are beyond this."""
    left, *rest = node.children
    if (
        left.type == "command"
        and [child.type for child in rest] == ["||", "command"]
        and _source(rest[1]).startswith("exit")
    ):
        return replace(_command(left), line=node.start_point[0] + 1)
    return _other(node, _WHY["list"])


def _declaration(node: Node) -> Statement:
    children = node.children
    if children[0].type != "export" or any(child.type in ("word", "concatenation") for child in children[1:]):
        return _other(node, f"{_source(children[0])} with options")
    pairs = [
        _assigned(child) if child.type == "variable_assignment" else (_source(child), None) for child in children[1:]
    ]
    return _made(node, EXPORT, assigned=tuple(pairs), sources=tuple(map(_source, children[1:])))


def _command(node: Node) -> Statement:
    before, words = [], []
    for child in node.children:
        if child.type == "variable_assignment":
            before.append(_assigned(child))
        elif child.type in _WHY:
            return _other(node, _WHY[child.type])
        elif child.type == "command_name":
            words.append(child.children[0])
        else:
            words.append(child)
    made = tuple(tuple(_parts(word)) for word in words)
    return _made(node, COMMAND, assigned=tuple(before), words=made, sources=tuple(map(_source, words)))


def _assigned(node: Node) -> tuple[str, Word | list[Word] | None]:
    name, value = _source(node.children[0]), node.child_by_field_name("value")
    if node.children[0].type != "variable_name" or node.children[1].type != "=":  # an element of an array, or +=
        return name, (Part("other", _source(node)),)
    if value is not None and value.type == "array":
        return name, [tuple(_parts(child)) for child in value.named_children if child.type != "comment"]
    return name, () if value is None else tuple(_parts(value))


def _parts(node: Node, quoted: bool = False) -> Iterator[Part]:
    kind, source = node.type, _source(node)
    if kind in ("word", "number", "variable_name") and not node.named_children:
        yield _plain(source)
    elif kind == "raw_string":
        yield Part("text", source[1:-1], quoted=True)
    elif kind == "string":
        yield Part("text", "", quoted=True)  # "" is a word, too
        yield from _string(node)
    elif kind == "concatenation":
        yield from _joined(node)
    elif kind == "simple_expansion":
        yield Part("variable", source[1:], quoted)
    elif kind == "expansion":
        yield _braces(node, quoted)
    elif kind == "command_substitution":
        yield Part("output", source[2:-1] if source.startswith("$(") else source[1:-1], quoted)
    elif kind == "arithmetic_expansion":
        yield Part("arithmetic", source[3:-2], quoted) if source.startswith("$((") else Part("other", source, quoted)
    else:
        yield Part("other", source, quoted)


def _plain(source: str) -> Part:
    """An unquoted word: its escapes are removed, and what the shell would expand to other words is no text."""
    text, escaped = "", False
    for char in source:
        if not escaped and char == "\\":
            escaped = True
            continue
        if not escaped and char in "*?[{}":
            return Part("other", source)
        text += "" if escaped and char == "\n" else char
        escaped = False
    return Part("text", text)


def _string(node: Node) -> Iterator[Part]:
    """What is between the double quotes; the text between its children belongs to it."""
    inner = [child for child in node.children if child.type not in ('"', "string_content")]
    position, end = node.start_byte + 1, node.end_byte - 1
    whole = node.text or b""
    for child in inner:
        yield from _quoted_text(whole[position - node.start_byte : child.start_byte - node.start_byte])
        yield from _parts(child, quoted=True)
        position = child.end_byte
    yield from _quoted_text(whole[position - node.start_byte : end - node.start_byte])


def _quoted_text(raw: bytes) -> Iterator[Part]:
    text, result, escaped = raw.decode("utf-8", "surrogateescape"), "", False
    for char in text:
        if escaped:
            result += char if char in '$`"\\' else "" if char == "\n" else "\\" + char
            escaped = False
        elif char == "\\":
            escaped = True
        else:
            result += char
    if text:
        yield Part("text", result, quoted=True)


def _joined(node: Node) -> Iterator[Part]:
    """The parts of a concatenation. Bytes between its children, which the grammar may leave out, are not known."""
    position = node.start_byte
    for child in node.children:
        if child.start_byte != position:
            yield Part("other", _source(node))
            return
        yield from _parts(child)
        position = child.end_byte


def _braces(node: Node, quoted: bool) -> Part:
    inner = node.children[1:-1]
    if len(inner) == 1 and inner[0].type == "variable_name":
        return Part("variable", _source(inner[0]), quoted)
    if len(inner) == 1 and inner[0].type == "subscript":
        name, index = inner[0].children[0], inner[0].children[2:-1]
        return Part("variable", _source(name), quoted, index="".join(map(_source, index)))
    return Part("other", _source(node), quoted)


def _source(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "surrogateescape")
