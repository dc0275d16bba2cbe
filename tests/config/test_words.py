"""A command given as text: split before interpolation, so that a value stays one word."""

from __future__ import annotations

import pytest

from slurmopt.config.task_command.words import split_words
from slurmopt.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python train.py", ["python", "train.py"]),
        ("python 'a b' \"c d\"", ["python", "a b", "c d"]),
        ("x ${lr}", ["x", "${lr}"]),
        ("x --a=${a b}", ["x", "--a=${a b}"]),
        ("x ${oc.env:A,'d e'} y", ["x", "${oc.env:A,'d e'}", "y"]),
        ("x ${a:${b:c d}} y", ["x", "${a:${b:c d}}", "y"]),
        ("x '${a}${b}'", ["x", "${a}${b}"]),
        ("x $HOME `id` $(id) ; rm", ["x", "$HOME", "`id`", "$(id)", ";", "rm"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@pytest.mark.parametrize("text", ["echo 'open", "echo ${open", "echo ${a:${b}"])
def test_what_does_not_close_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"task\.command"):
        split_words(text)
