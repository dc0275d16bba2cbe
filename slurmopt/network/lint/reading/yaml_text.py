"""Variables in YAML: keys of mappings, also behind dots (`environment.variables.X`), `X=1` in lists, `name` and `value`
of Kubernetes, and lines of shell in texts."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from slurmopt.config.composition import stored_yaml
from slurmopt.network.lint.names import NAME
from slurmopt.network.lint.reading import shell
from slurmopt.network.lint.setting import Setting

_NULLS = ("", "~", "null", "Null", "NULL")
_KEY = re.compile(rf"[+~]{{0,2}}(?:[\w@/-]+\.)*({NAME.pattern})")


def settings(text: str, place: str) -> list[Setting]:
    """The variables in a file, by line. Raises yaml.YAMLError."""
    found: list[Setting] = []
    seen: set[int] = set()
    waiting = list(stored_yaml.nodes(text))
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            found += _of_mapping(node, place)
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.ScalarNode):
            found += _of_text(node, place)
    return sorted(found, key=lambda setting: setting.line or 0)


def _of_mapping(node: yaml.MappingNode, place: str) -> Iterator[Setting]:
    named: dict[str, yaml.Node] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        named[key.value] = value
        match = _KEY.fullmatch(key.value)
        if match is not None:
            yield from _values(match[1], value, place)
    name, value = named.get("name"), named.get("value")
    if isinstance(name, yaml.ScalarNode) and value is not None and NAME.fullmatch(name.value):
        yield from _values(name.value, value, place)


def _values(name: str, node: yaml.Node, place: str) -> Iterator[Setting]:
    """The value, or each value of a list: an axis of a sweep."""
    for one in node.value if isinstance(node, yaml.SequenceNode) else [node]:
        if isinstance(one, yaml.ScalarNode) and (one.style or one.value not in _NULLS):
            yield Setting(name, None if "${" in one.value else one.value, place, one.start_mark.line + 1)


def _of_text(node: yaml.ScalarNode, place: str) -> list[Setting]:
    is_block = node.style in ("|", ">")
    return shell.settings(node.value, place, node.start_mark.line + (2 if is_block else 1))
