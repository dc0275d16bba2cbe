"""Errors of slurmopt without the pages of a traceback, which would hide their line in a notebook."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from slurmopt.errors import InputError, SlurmoptError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_TYPED = (
    (re.compile(r"\bwrite (\+{1,2}[^\s=]+)=…"), r"give {'\1': …}"),
    (re.compile(r"\badd -m\b"), "give multirun=True"),
    (re.compile(r"\badd --again\b"), "give again=True"),
)
"""What messages tell to type on a command line, and what Python has in its place."""


def plain_errors(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """`function`, whose errors of slurmopt come without the frames and the errors from which they were raised."""

    @functools.wraps(function)
    def plainly(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except SlurmoptError as error:
            if isinstance(error, InputError):
                error.args = tuple(map(_in_python, error.args))
            raise error.with_traceback(None) from None

    return plainly


def _in_python(message: object) -> object:
    if not isinstance(message, str):
        return message
    for typed, given in _TYPED:
        message = typed.sub(given, message)
    return message
