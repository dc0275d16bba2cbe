"""Reads the docstrings below the fields of the config dataclasses: for the reference, and for completion."""

from __future__ import annotations

import ast
from dataclasses import is_dataclass
from inspect import getsource
from itertools import pairwise
from textwrap import dedent
from typing import Any


def field_docs(kind: type[Any]) -> dict[str, str]:
    """Returns the docstring of each field of a dataclass, including inherited fields; its own come first."""
    docs: dict[str, str] = {}
    for owner in kind.__mro__:
        if is_dataclass(owner):
            docs |= {name: doc for name, doc in own_docs(owner).items() if name not in docs}
    return docs


def own_docs(kind: type[Any]) -> dict[str, str]:
    """Returns the docstrings of the fields that a dataclass defines itself."""
    (tree,) = ast.parse(dedent(getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    docs = {}
    for field, doc in pairwise(tree.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(doc, ast.Expr):
            docs[field.target.id] = " ".join(ast.literal_eval(doc.value).split())
    return docs
