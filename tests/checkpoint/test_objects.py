"""What is not a large tensor goes to a checkpoint and comes back as it was, and no bytes can do harm."""

from __future__ import annotations

import base64
import contextlib
import datetime
import enum
import io
import json
import math
import struct
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slurmopt.checkpoint.format.object_decoder import decode
from slurmopt.checkpoint.format.object_encoder import encode
from slurmopt.errors import CheckpointError

FUZZ = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure


def again(value: Any) -> Any:
    return decode(encode(value, "state"), "state")


def same(one: Any, other: Any) -> bool:
    """Equal in type and to the last bit, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack(">d", one) == struct.pack(">d", other)
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    if isinstance(one, dict):
        factories = [getattr(it, "default_factory", None) for it in (one, other)]
        return factories[0] is factories[1] and same(list(one.items()), list(other.items()))
    if isinstance(one, list | tuple) and not isinstance(one, torch.Size):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, set | frozenset):
        return len(one) == len(other) and all(any(same(item, twin) for twin in other) for item in one)
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and _bytes(one) == _bytes(other)
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return bool(one == other)


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.resolve_conj().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


HASHABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters(exclude_categories=()))
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.frozensets(inner, max_size=4),
    max_leaves=6,
)
PLAIN = st.recursive(
    HASHABLE,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.sets(HASHABLE, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=4).map(OrderedDict)
        | st.dictionaries(HASHABLE, inner, max_size=4).map(lambda items: defaultdict(list, items))
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(FUZZ, max_examples=300)
@given(PLAIN)
@example("\ud83d\ude00")  # two characters, which JSON's escapes would make one
@example([-0.0, math.inf, -math.inf, math.nan, 5e-324, 10**5000, -(2**63), 2**63, True, 1, 1.0])
@example({1: "a", "1": "b", (1,): "c", None: "d", "tuple": [1], b"\xff": {}})
@example(struct.unpack(">d", b"\xff\xf8\x00\x00\x00\x00\x00\x07")[0])  # a nan with a sign and a payload
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    assert same(again(value), value)


@pytest.mark.parametrize(
    "value",
    [
        torch.Size([2, 3]),
        torch.Size([]),
        torch.bfloat16,
        torch.device("cuda:3"),
        torch.device("cpu"),
        Counter({30: 1, 80: 2}),
        defaultdict(None, {1: 2}),
        bytearray(b"\0\xff"),
        np.float64(0.1),
        np.float32("nan"),
        np.bool_(True),
        np.int64(-5),
        np.datetime64("2026-01-02", "ns"),
        np.complex64(1 - 2j),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.zeros((0, 3), dtype=np.float16),
        np.array(7),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(["a", "bc\0d"]),
    ],
    ids=repr,
)
def test_what_schedulers_and_numpy_keep_comes_back_as_it_was(value: Any) -> None:
    assert same(again({"a": [value]}), {"a": [value]})


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint16, torch.complex64, torch.float8_e4m3fn],
    ids=str,
)
@pytest.mark.parametrize("shape", [(), (0, 4), (3, 5)], ids=str)
def test_small_tensors_come_back_as_they_were(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.arange(math.prod(shape)).reshape(shape) + 1).to(dtype)
    assert same(again(tensor), tensor)
    if len(shape) == 2:
        assert same(again(tensor.T), tensor.T)
    copied = again(tensor)
    copied.zero_()  # it is memory of its own, that can be written
    assert not math.prod(shape) or not same(copied, tensor)


def test_a_tensor_that_is_more_than_its_bytes_comes_back_too() -> None:
    conjugated = torch.tensor([1 + 2j]).conj()
    assert same(again(conjugated), conjugated)
    parameter = again({"w": torch.nn.Parameter(torch.ones(2))})["w"]
    assert type(parameter) is torch.nn.Parameter
    assert parameter.requires_grad
    assert again(torch.eye(3).to_sparse()).to_dense().equal(torch.eye(3))


def test_what_torchs_own_schedulers_and_optimizers_say_comes_back() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    schedulers = torch.optim.lr_scheduler
    stateful: list[Any] = [
        optimizer,
        schedulers.MultiStepLR(optimizer, [30, 80]),
        schedulers.ReduceLROnPlateau(optimizer),
        schedulers.OneCycleLR(optimizer, 0.1, 100),
        schedulers.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
        torch.amp.GradScaler("cpu"),
    ]
    for it in stateful:
        assert same(again(it.state_dict()), it.state_dict()), type(it)


def test_equal_sets_are_equal_bytes() -> None:
    assert encode(set([0, 8, 16]), "k") == encode(set([16, 8, 0]), "k")


class Color(enum.IntEnum):
    RED = 1


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (datetime.datetime(2026, 1, 1), "datetime.datetime"),
        (Color.RED, "Color"),
        (Pair(1, 2), "Pair"),
        (lambda: 0, "builtins.function"),
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
        (np.array([{}]), "numpy.ndarray"),
        (np.ma.masked_array([1], [True]), "MaskedArray"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_saved_is_named_with_its_place(value: Any, kind: str) -> None:
    with pytest.raises(CheckpointError) as told:
        encode({"list": [0, {"inner": value}]}, "extra")
    line = str(told.value)
    assert line.startswith("extra['list'][1]['inner']: a ")
    assert kind in line
    assert "give it state_dict and load_state_dict" in line
    assert "\n" not in line


def test_a_defaultdict_of_a_function_is_refused_and_the_valid_ones_are_named() -> None:
    with pytest.raises(CheckpointError, match=r"^state: a defaultdict of .*use one of int, float"):
        encode(defaultdict(lambda: 0), "state")


def test_a_list_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(CheckpointError, match="contains itself"):
        encode(endless, "state")


def test_the_deepest_that_is_saved_is_read_back() -> None:
    deep: Any = {}
    for _ in range(33):
        deep = {"a": [(deep,)]}
    assert same(again(deep), deep)


def _refused(data: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"^some/key: ") as told:
        decode(data, "some/key")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nul",
        b"\xff",
        b"NaN",
        b"9" * 100_000,
        b"[" * 100_000,
        b"[" * 300 + b"]" * 300,
        b'{"tuple":' * 5000 + b"[]" + b"}" * 5000,
        b'{"tuple":[' * 300 + b"]}" * 300,
        b'{"dict":[[0,' * 300 + b"0" + b"]]}" * 300,
        b'{"nobody":1}',
        b"{}",
        b'{"int":"1","str":""}',
        b'{"int":{}}',
        b'{"str":"ff"}',
        b'{"bytes":"?"}',
        b'{"set":[[1]]}',
        b'{"dict":[[{"dict":[]},1]]}',
        b'{"dict":[[1]]}',
        b'{"dict":5}',
        b'{"tuple":"ab"}',
        b'{"complex":[1]}',
        b'{"defaultdict":["eval",[]]}',
        b'{"torch.dtype":"load"}',
        b'{"torch.dtype":["float32"]}',
        b'{"torch.device":"nowhere"}',
        b'{"torch.Size":["a"]}',
        b'{"torch.Tensor":["float32",[2],"AAAA"]}',
        b'{"torch.Tensor":["float32",[0,-1],""]}',
        b'{"torch.Tensor":["float32",[0,9999999999999999999],""]}',
        b'{"torch.Tensor":["qint8",[1],"AA=="]}',
        b'{"numpy.ndarray":["O",[1],"AAAAAAAAAAA="]}',
        b'{"numpy.ndarray":["V8",[1],"AAAAAAAAAAA="]}',
        b'{"numpy.ndarray":["<f8",["x"],"AAAAAAAAAAA="]}',
        b'{"numpy.ndarray":["S0",[5],""]}',
        b'{"numpy.scalar":["i4,f8","AAAAAAAAAAAAAAAA"]}',
        b'{"torch.save":"AAAA"}',
        b'{"torch.save":"UEsDBA=="}',
    ],
    ids=lambda data: data[:40].decode("latin-1"),
)
def test_hostile_bytes_are_one_clear_error(data: bytes) -> None:
    _refused(data)


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Any) -> None:
    """Through torch.save, whose archive holds a pickle: it is read, but nothing in it is called."""

    class Harm:
        def __reduce__(self) -> Any:
            return (open, (str(tmp_path / "harm"), "w"))

    file = io.BytesIO()
    torch.save(Harm(), file)
    for data in (file.getvalue(), b"\x80\x02cos\nsystem\n."):
        _refused(b'{"torch.save":"' + base64.b64encode(data) + b'"}')
    assert not list(tmp_path.iterdir())


SAVED = [
    encode(value, "k")
    for value in (
        {"a": [1, (2.5, "x"), {3}], 5: b"bytes", "big": 2**70, "nan": math.nan},
        [torch.ones(2, 3), torch.float16, torch.device("cpu"), torch.Size([4])],
        [np.arange(4.0), np.int8(3), Counter("ab"), defaultdict(int), OrderedDict(a=1)],
        torch.nn.Parameter(torch.ones(2)),
    )
]


def _refused_or_read(data: bytes) -> None:
    """Any other error fails the test."""
    with contextlib.suppress(CheckpointError):
        decode(data, "some/key")


@settings(FUZZ, max_examples=400)
@given(st.data())
def test_damaged_bytes_give_a_value_or_the_one_error(data: st.DataObject) -> None:
    damaged = bytearray(data.draw(st.sampled_from(SAVED)))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        damaged = damaged or bytearray(b"?")
    _refused_or_read(bytes(damaged))


TAGS = ["int", "float", "str", "complex", "bytes", "tuple", "set", "dict", "Counter", "defaultdict", "torch.Size"]
TAGS += ["torch.dtype", "torch.device", "torch.Tensor", "torch.save", "numpy.scalar", "numpy.ndarray"]
JSONS = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.sampled_from(TAGS).flatmap(lambda tag: inner.map(lambda content: {tag: content}))
    ),
    max_leaves=8,
)


@settings(FUZZ, max_examples=400)
@given(JSONS)
def test_any_json_gives_a_value_or_the_one_error(tree: Any) -> None:
    _refused_or_read(json.dumps(tree).encode())


def test_plain_values_need_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from slurmopt.checkpoint.format.object_decoder import decode\n"
        "from slurmopt.checkpoint.format.object_encoder import encode\n"
        "assert decode(encode({'a': (1, 2.5)}, 'k'), 'k') == {'a': (1, 2.5)}\n"
        "print([name for name in ('torch', 'numpy') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
