"""The styles of the board: the terminal's own colours and background, so that it fits dark and light ones; none where
the user wants no colours."""

from __future__ import annotations

from functools import lru_cache

from rich.style import Style

_NAMED = {
    "selected": "reverse",
    "head": "bold underline",
    "title": "bold cyan reverse",
    "key": "bold cyan",
    "prompt": "bold",
}
_WITHOUT_COLOURS = {
    "selected": "reverse",
    "head": "bold underline",
    "title": "bold reverse",
    "key": "bold",
    "prompt": "bold",
}
_KEPT = ("bold", "dim", "underline", "reverse")


@lru_cache(maxsize=256)
def style(words: str, colours: bool = True) -> Style:
    """The style that a span's words name."""
    if colours:
        return Style.parse(_NAMED.get(words, words)) if words else Style()
    named = _WITHOUT_COLOURS.get(words, words)
    return Style.parse(" ".join(word for word in named.split() if word in _KEPT) or "none")
