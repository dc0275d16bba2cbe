"""Reads config.yaml of a run folder, which is untrusted, as plain containers without resolving interpolations.

The result equals that of `OmegaConf.load`. With libyaml, if PyYAML has it, reading is ten times as fast.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from slurmopt.errors import one_line
from slurmopt.run_folder.access.files import read_text

_MOST_NODES = 1_000_000
_MOST_WRITTEN = 200_000
_DEEPEST = 100
_TOO_DEEP = "it is nested too deeply"
_INDICATORS = "[{-?:"
_HARMLESS_DEPTH = 1000
_LONGEST = 40
_MOST_DIGITS = 3500
"""Python prints numbers of up to 4300 digits, and of hexadecimal ones each counts for 1.2. The time to parse a base 60
number, such as 1:30:00, is quadratic in the number of digits."""


def load(path: Path, exact: bool = True, mine: bool = False) -> Any:
    """Returns the content of the file as plain containers.

    `exact`: parse numbers such as 1e-3 like OmegaConf, whose import takes 20 ms. `mine`: require that the file belongs
    to this user, because the config is going to be executed.

    Raises OSError if the file cannot be read. Raises yaml.YAMLError if it is not valid YAML or not a regular file, if a
    value is invalid for its tag, if there are too many values for a config, if aliases are cyclic, or if they expand to
    more than a million values.
    """
    try:
        text = read_text(path, mine)
    except ValueError as error:
        raise yaml.YAMLError(str(error)) from error
    return parse(text, exact)


def parse(text: str, exact: bool = True) -> Any:
    """Returns `text`, the content of a file, as plain containers. Raises yaml.YAMLError like `load`."""
    if text.count("\n") + text.count(",") > _MOST_WRITTEN:  # parsing would take minutes and gigabytes
        raise yaml.YAMLError(f"it has more than {_MOST_WRITTEN:,} lines and commas")
    try:
        _refuse_deep(text)
        value = yaml.load(text, Loader=_loader(exact))  # noqa: S506 - a safe one
        _unfolded(value, {}, set())
    except RecursionError as error:
        raise yaml.YAMLError(_TOO_DEEP) from error
    return value


def nodes(text: str) -> list[yaml.Node]:
    """Returns the documents of any YAML as nodes, which know their lines; tags and duplicate keys are not looked at.
    Raises yaml.YAMLError like `load`."""
    if text.count("\n") + text.count(",") > _MOST_WRITTEN:
        raise yaml.YAMLError(f"it has more than {_MOST_WRITTEN:,} lines and commas")
    try:
        _refuse_deep(text)
        return [node for node in yaml.compose_all(text, Loader=_loader(False)) if node is not None]
    except RecursionError as error:
        raise yaml.YAMLError(_TOO_DEEP) from error


def _refuse_deep(text: str) -> None:
    """Raises YAMLError if the text is nested too deeply. libyaml's composer calls itself for each level, without a
    limit: a text of 100,000 brackets ends the process with SIGSEGV. Each level takes an indicator, so that most texts
    need not be looked at."""
    if sum(map(text.count, _INDICATORS)) < _HARMLESS_DEPTH:
        return
    depth = 0
    for event in yaml.parse(text, Loader=_loader(False)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _HARMLESS_DEPTH:
            raise yaml.YAMLError(_TOO_DEEP)


def not_allowed(node: yaml.Node) -> ConstructorError:
    """Returns the error, with its position, for a value that is invalid for its tag, such as `!!bool maybe`."""
    value = str(node.value)
    shown = repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…")
    return ConstructorError(None, None, f"{one_line(shown)} is no {node.tag.rpartition(':')[2]}", node.start_mark)


_MERGE = "tag:yaml.org,2002:merge"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
MISFITS = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError)
"""The exceptions that PyYAML raises for such a value."""


def _unfolded(value: Any, measured: dict[int, tuple[int, int]], above: set[int]) -> tuple[int, int]:
    """Returns the number of values and their depth after each alias is expanded to a copy, as OmegaConf does.

    Raises YAMLError if a limit is exceeded."""
    if not isinstance(value, (dict, list)):
        return 1, 0
    if id(value) in above:
        raise yaml.YAMLError("its aliases lead in a circle")
    if id(value) not in measured:
        above.add(id(value))
        parts = [_unfolded(part, measured, above) for part in (value.values() if isinstance(value, dict) else value)]
        above.discard(id(value))
        size, depth = 1 + sum(each[0] for each in parts), 1 + max((each[1] for each in parts), default=0)
        if size > _MOST_NODES:
            raise yaml.YAMLError(f"its aliases unfold to more than {_MOST_NODES:,} values")
        if depth > _DEEPEST:
            raise yaml.YAMLError(_TOO_DEEP)
        measured[id(value)] = size, depth
    return measured[id(value)]


@cache
def _loader(exact: bool) -> type[Any]:
    """Returns a safe loader, libyaml's if PyYAML has it, that rejects duplicate keys."""
    tables: Any = yaml.SafeLoader
    if exact:
        from omegaconf._utils import get_yaml_loader

        tables = get_yaml_loader()

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers = tables.yaml_implicit_resolvers
        yaml_constructors = tables.yaml_constructors

        def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
            if node.tag in _NUMBERS and len(node.value) > _MOST_DIGITS:
                raise not_allowed(node)
            try:
                return super().construct_object(node, deep)
            except MISFITS as error:
                raise not_allowed(node) from error

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
            _check_keys(node)
            return super().construct_mapping(node, deep=deep)

    return Loader


def _check_keys(node: yaml.MappingNode) -> None:
    """Raises ConstructorError for a duplicate key or a merge key."""
    keys = set()
    for key, _ in node.value:
        if key.tag == _MERGE:  # nested merges grow exponentially; slurmopt writes none
            raise ConstructorError(None, None, "keys are not merged here by <<", key.start_mark)
        if not isinstance(key.value, str):  # rejected by PyYAML
            continue
        if key.value in keys and key.tag == yaml.resolver.BaseResolver.DEFAULT_SCALAR_TAG:
            problem = f"found duplicate key {key.value}"
            raise ConstructorError("while constructing a mapping", node.start_mark, problem, key.start_mark)
        keys.add(key.value)
