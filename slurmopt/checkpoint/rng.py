"""Saves and restores the global random number generators of Python, NumPy and torch."""

from __future__ import annotations

import hashlib
import json
import random
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from slurmopt.errors import CheckpointError

_WORDS = 624  # the state size of the Mersenne Twister, which Python and NumPy use
_PYTHON = f"<{_WORDS + 1}I"  # the words, and the position in them
_NUMPY = f"<{_WORDS}I"


def rng_state() -> RngState:
    """An entry for a checkpoint's state with which random numbers continue where they were:
    `{"rng": rng_state(), "model": model, ...}`."""
    return RngState()


class RngState:
    """The global generators of this process: Python's `random`, `numpy.random` where NumPy is imported, torch's on the
    CPU, and on each visible CUDA device where CUDA was used.

    It does not include other generators (`torch.Generator`, `numpy.random.default_rng`) or those of DataLoader workers.
    """

    per_rank = True
    """The generators differ between ranks, so a checkpoint holds one state per rank."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors of bytes (uint8), numbers and None: a copy, which does not change with the generators.

        Raises CheckpointError where NumPy's global generator was replaced by one that is not a Mersenne Twister.
        """
        state: dict[str, Any] = {**_python_state(), "torch": torch.get_rng_state()}
        if "numpy" in sys.modules:
            state |= _numpy_state()
        if torch.cuda.is_initialized():
            state |= _cuda_state()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores each generator. Skips those of CUDA devices that do not exist, and NumPy's where it is not
        installed.

        Raises CheckpointError where the state does not fit; some generators may be set by then.
        """
        _set("python", state, _set_python)
        _set("torch", state, lambda state: torch.set_rng_state(_bytes(state, "torch")))
        if "numpy" in state and _has_numpy():
            _set("numpy", state, _set_numpy)
        if "cuda_device" in state and torch.cuda.is_available():
            _set("cuda", state, _set_cuda)

    def derive(self, state: Mapping[str, Any], rank: int) -> None:
        """Seeds all generators from another rank's `state` and this rank's number, for a rank that did not exist when
        the checkpoint was saved. The result is reproducible and differs between ranks."""
        seed = _digest(state, rank)
        random.seed(seed)
        # Also seeds CUDA's generators, at once or when CUDA is first used. It takes 64 bits.
        torch.manual_seed(int.from_bytes(seed[:8], "little"))
        if ("numpy" in state or "numpy" in sys.modules) and _has_numpy():
            import numpy as np

            np.random.seed(np.frombuffer(seed, dtype="<u4").astype(np.uint32))


def _has_numpy() -> bool:
    """Whether NumPy is installed, which torch does not require."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True


def _python_state() -> dict[str, Any]:
    _, words, gauss = random.getstate()
    return {"python": _tensor(struct.pack(_PYTHON, *words)), "python_gauss": gauss}


def _set_python(state: Mapping[str, Any]) -> None:
    words = struct.unpack(_PYTHON, bytes(_bytes(state, "python").tolist()))
    random.setstate((3, words, state["python_gauss"]))


def _numpy_state() -> dict[str, Any]:
    import numpy as np

    now: Any = np.random.get_state(legacy=False)
    if now["bit_generator"] != "MT19937":
        raise CheckpointError(
            f"NumPy's global generator was replaced by {now['bit_generator']}; only its own, MT19937, can be saved"
        )
    return {
        "numpy": _tensor(struct.pack(_NUMPY, *now["state"]["key"].tolist())),
        "numpy_used": int(now["state"]["pos"]),
        "numpy_has_gauss": int(now["has_gauss"]),
        "numpy_gauss": float(now["gauss"]),
    }


def _set_numpy(state: Mapping[str, Any]) -> None:
    import numpy as np

    words = np.array(struct.unpack(_NUMPY, bytes(_bytes(state, "numpy").tolist())), dtype=np.uint32)
    used, has_gauss, gauss = (state[f"numpy_{name}"] for name in ("used", "has_gauss", "gauss"))
    np.random.set_state(("MT19937", words, used, has_gauss, gauss))


def _cuda_state() -> dict[str, Any]:
    devices = range(torch.cuda.device_count())
    states = {f"cuda_{device}": torch.cuda.get_rng_state(device) for device in devices}
    return {**states, "cuda_device": torch.cuda.current_device()}


def _set_cuda(state: Mapping[str, Any]) -> None:
    """Where the rank uses another device of its node than when it saved, the states of the two devices are swapped."""
    then, now = state["cuda_device"], torch.cuda.current_device()
    came_from = {now: then, then: now}
    for device in range(torch.cuda.device_count()):
        saved = f"cuda_{came_from.get(device, device)}"
        if saved in state:
            torch.cuda.set_rng_state(_bytes(state, saved), device)


def _set(name: str, state: Mapping[str, Any], setter: Callable[[Mapping[str, Any]], None]) -> None:
    try:
        setter(state)
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError, struct.error) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error).partition("\n")[0]
        raise CheckpointError(f"the state of the {name} generator does not fit: {reason}") from error


def _bytes(state: Mapping[str, Any], name: str) -> torch.Tensor:
    tensor = state[name]
    if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.uint8 or tensor.dim() != 1:
        raise TypeError(f"{name!r} is not a vector of bytes")
    return tensor.cpu().clone()  # torch's generator does not accept every tensor that is a view of other memory


def _tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _digest(state: Mapping[str, Any], rank: int) -> bytes:
    """64 bytes, a hash of the whole state and the rank."""
    plain = {
        name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in sorted(state.items())
    }
    return hashlib.sha512(json.dumps([plain, rank]).encode()).digest()
