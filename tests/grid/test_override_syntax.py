"""A value, written as a word of an override, is what Hydra's grammar reads back; and so are values in points.json."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurmopt.grid.codec import decode, encode
from slurmopt.grid.override_syntax import is_text, override_value

PARSER = OverridesParser.create()
TEXTS = st.text(alphabet=st.sampled_from("ab01.-+_eE'\"\\ ,:=()[]{}$%~#\n\tü😀"), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
KEYS = st.from_regex(r"[a-z][a-z0-9 :=.\\\[]{0,5}[a-z]", fullmatch=True).filter(is_text) | st.integers()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))


def read(text: str) -> Any:
    return PARSER.parse_override(f"key={text}").value()


@settings(max_examples=150, deadline=None)
@given(VALUES)
@example("\\\n")
def test_hydra_reads_back_what_we_write(value: Any) -> None:
    assert repr(read(override_value(value))) == repr(value)


@pytest.mark.parametrize(
    "text", ["007", "0", ".5", "1_000", "1.", "1e3", "01e3", "+1", "inf", "-NaN", "Null", "tRue", "e3"]
)
def test_what_is_text_to_hydra_is_text_to_us(text: str) -> None:
    assert is_text(text) == isinstance(read(text), str)


@settings(max_examples=150, deadline=None)
@given(st.recursive(SCALARS | st.binary(max_size=3), lambda inner: st.lists(inner) | st.dictionaries(SCALARS, inner)))
def test_points_json_keeps_every_value(value: Any) -> None:
    assert repr(decode(json.loads(json.dumps(encode(value), allow_nan=False)))) == repr(value)


def test_a_foreign_object_is_refused() -> None:
    with pytest.raises(TypeError, match="a set cannot be stored"):
        encode({"a": [{1}]})
