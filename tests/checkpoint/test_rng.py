"""Random numbers go on where they were, of every generator, and no rank repeats another's."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from slurmopt.checkpoint.format.object_decoder import decode
from slurmopt.checkpoint.format.object_encoder import encode
from slurmopt.checkpoint.rng import rng_state
from slurmopt.errors import CheckpointError


def numbers() -> list[Any]:
    """The next numbers of all generators, of the kinds that keep something back for the next call too."""
    drawn: list[Any] = [random.gauss(0, 1), random.random(), random.getrandbits(70)]
    drawn += [np.random.randn(), np.random.random(), *np.random.permutation(9).tolist()]
    drawn += [torch.randn(()).item(), torch.rand(()).item(), *torch.randperm(9).tolist()]
    if torch.cuda.is_available():
        drawn += torch.rand(4, device="cuda").tolist()
    return drawn


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    numbers()


@pytest.mark.parametrize("drawn_before", range(3))
def test_the_next_numbers_are_the_same(drawn_before: int) -> None:
    for _ in range(drawn_before):
        random.gauss(0, 1)  # each second one of these is kept from the call before
        np.random.randn()
    state = rng_state().state_dict()
    uninterrupted = [numbers() for _ in range(400)]  # further than any generator's buffer
    rng_state().load_state_dict(state)
    assert [numbers() for _ in range(400)] == uninterrupted
    rng_state().load_state_dict(state)  # what was saved did not go on with the generators
    assert numbers() == uninterrupted[0]


@pytest.mark.slow
def test_a_new_process_goes_on_with_the_same_numbers(tmp_path: Any) -> None:
    path = tmp_path / "state"
    path.write_bytes(encode(rng_state().state_dict(), "rng"))
    code = (
        "import sys, random, pathlib, torch; from slurmopt.checkpoint.rng import rng_state\n"
        "from slurmopt.checkpoint.format.object_decoder import decode\n"
        f"rng_state().load_state_dict(decode(pathlib.Path({str(path)!r}).read_bytes(), 'rng'))\n"
        "import numpy; print(repr((random.gauss(0, 1), numpy.random.randn(), torch.randn(()).item())))"
    )
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert said.strip() == repr((random.gauss(0, 1), np.random.randn(), torch.randn(()).item()))


def test_the_state_is_bytes_and_plain_values_of_each_rank() -> None:
    random.gauss(0, 1)
    state = rng_state().state_dict()
    for name, value in state.items():
        assert value is None or type(value) in (int, float) or value.dtype == torch.uint8, name
    assert decode(encode(state, "rng"), "rng").keys() == state.keys()
    assert rng_state().per_rank


def test_a_rank_that_was_not_there_gets_numbers_of_its_own() -> None:
    state = rng_state().state_dict()
    drawn = {}
    for rank in (4, 5, 4):
        rng_state().derive(state, rank)
        numbers_of_rank = numbers()
        assert drawn.setdefault(rank, numbers_of_rank) == numbers_of_rank  # the same each time
        numbers()
    rng_state().load_state_dict(state)
    drawn[0] = numbers()
    random.random()  # the same rank, from another checkpoint
    rng_state().derive(rng_state().state_dict(), 4)
    drawn[-4] = numbers()
    for generator in range(len(drawn[0])):
        if isinstance(drawn[0][generator], float):
            assert len({row[generator] for row in drawn.values()}) == len(drawn), generator


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"python": torch.zeros(5, dtype=torch.uint8)}, "the python generator does not fit"),
        ({"python": [1, 2]}, "the python generator does not fit: 'python' is not a vector of bytes"),
        ({"python_gauss": ...}, "the python generator does not fit: 'python_gauss' is missing"),
        ({"torch": torch.zeros(7, dtype=torch.uint8)}, "the torch generator does not fit"),
        ({"torch": torch.zeros(5056)}, "the torch generator does not fit"),
        ({"numpy": torch.zeros(2496)}, "the numpy generator does not fit"),
        ({"numpy_used": "x"}, "the numpy generator does not fit"),
    ],
)
def test_a_state_that_does_not_fit_is_one_clear_line(change: dict[str, Any], line: str) -> None:
    state = rng_state().state_dict() | change
    with pytest.raises(CheckpointError) as told:
        rng_state().load_state_dict({name: value for name, value in state.items() if value is not ...})
    assert line in str(told.value)
    assert "\n" not in str(told.value)


def test_a_foreign_global_generator_of_numpy_is_refused() -> None:
    own = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(1))
    try:
        with pytest.raises(CheckpointError, match="replaced by PCG64"):
            rng_state().state_dict()
    finally:
        np.random.set_bit_generator(own)


def test_numpy_is_left_alone_where_nobody_imported_it() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None; import torch; del sys.modules['numpy']\n"
        "from slurmopt.checkpoint.rng import rng_state; state = rng_state().state_dict()\n"
        "print([name for name in state if name.startswith('numpy')], 'numpy' in sys.modules)\n"
        "rng_state().load_state_dict(state); rng_state().derive(state, 1); print('numpy' in sys.modules)"
    )
    said = subprocess.check_output([sys.executable, "-W", "ignore", "-c", code], text=True, stderr=subprocess.DEVNULL)
    assert said.split("\n")[:2] == ["[] False", "False"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_rank_on_another_device_of_its_node_takes_its_numbers_along() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    torch.cuda.set_device(0)
    torch.rand(3, device="cuda:0")
    state = rng_state().state_dict()
    here = torch.rand(4, device="cuda:0").tolist()
    torch.cuda.set_device(1)
    rng_state().load_state_dict(state)
    assert torch.rand(4, device="cuda:1").tolist() == here
    torch.cuda.set_device(0)
