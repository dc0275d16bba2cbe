"""The styles of the board: the terminal's own colours and background, so that it fits dark and light ones; none where
the user wants no colours."""

from __future__ import annotations

_NAMED = {
    "selected": "reverse",
    "head": "bold underline",
    "title": "bold cyan reverse",
    "key": "bold cyan",
    "prompt": "bold",
}
_CODES = {"bold": 1, "dim": 2, "underline": 4, "reverse": 7}
_COLOURS = {"red": 31, "green": 32, "yellow": 33, "magenta": 35, "cyan": 36}


def plain_words(style: str, colours: bool = True) -> str:
    """The style as words that Rich knows."""
    words = _NAMED.get(style, style).split()
    return " ".join(word for word in words if colours or word not in _COLOURS)


def painted(text: str, style: str, colours: bool = True) -> str:
    """The text between the escapes of its style."""
    codes = [str(_CODES.get(word) or _COLOURS[word]) for word in plain_words(style, colours).split()]
    return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if codes else text
