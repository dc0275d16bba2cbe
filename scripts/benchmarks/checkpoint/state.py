"""What the checkpoint bench saves, and the bare work that a save and a restore are compared with: copy, write, read."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

GIB = 1 << 30
PIECE = 16 << 20
THREADS = 2
TENSORS_OF_ADAMW = 2
LAYERS = 6


class Model(torch.nn.Module):  # type: ignore[misc]
    """An embedding and six transformer layers, 73 tensors of 16 KiB to 50 MiB at full size."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        width = max(64, int((parameters / (LAYERS * 12 * 1.19)) ** 0.5) // 64 * 64)
        layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        rest = parameters - sum(each.numel() for each in self.layers.parameters())
        self.embedding = torch.nn.Embedding(max(16, rest // width), width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.layers(self.embedding(tokens)).square().mean()
        return loss


class Training:
    """A model in fp32 with AdamW: weights and both moments are `gib` GiB together, once it has stepped."""

    def __init__(self, gib: float) -> None:
        torch.manual_seed(0)
        self.model = Model(int(gib * GIB) // (4 * (1 + TENSORS_OF_ADAMW)))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.state = {"model": self.model, "optimizer": self.optimizer}

    def step(self) -> float:
        """Changes every tensor of the state; returns seconds."""
        began = time.perf_counter()
        self.optimizer.zero_grad()
        self.model(torch.randint(0, 16, (2, 16))).backward()
        self.optimizer.step()
        return time.perf_counter() - began

    def tensors(self) -> list[torch.Tensor]:
        """All that is large enough to matter."""
        moments = [state[key] for state in self.optimizer.state.values() for key in ("exp_avg", "exp_avg_sq")]
        return [parameter.detach() for parameter in self.model.parameters()] + moments

    @property
    def bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors())


class Bare:
    """The same bytes copied, written and read without any library; its memory is touched before."""

    def __init__(self, tensors: list[torch.Tensor], folder: Path) -> None:
        self._tensors = tensors
        self._bytes = -(-sum(tensor.numel() * tensor.element_size() for tensor in tensors) // PIECE) * PIECE
        raw = torch.zeros(self._bytes + 4096, dtype=torch.uint8)
        self._memory = raw[-raw.data_ptr() % 4096 :][: self._bytes]
        self._path = folder / "bare"

    def copy(self) -> float:
        """memcpy by one thread; seconds."""
        began, end = time.perf_counter(), self._memory.data_ptr()
        for tensor in self._tensors:
            length = tensor.numel() * tensor.element_size()
            ctypes.memmove(end, tensor.data_ptr(), length)
            end += length
        return time.perf_counter() - began

    def write(self) -> float:
        """Past the page cache into a new file, synced with its folder; seconds."""
        self._path.unlink(missing_ok=True)
        began = time.perf_counter()
        self._transfer(os.O_WRONLY | os.O_CREAT | os.O_EXCL, os.pwrite, sync=True)
        folder = os.open(self._path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        return time.perf_counter() - began

    def read(self) -> float:
        """Past the page cache, what `write` wrote; seconds."""
        began = time.perf_counter()
        self._transfer(os.O_RDONLY, lambda file, piece, offset: os.preadv(file, [piece], offset), sync=False)
        return time.perf_counter() - began

    def _transfer(self, flags: int, move: Callable[[int, memoryview, int], int], sync: bool) -> None:
        file = os.open(self._path, flags | os.O_DIRECT, 0o600)
        view = memoryview(self._memory.numpy())

        def piece(offset: int) -> None:
            if move(file, view[offset : offset + PIECE], offset) != PIECE:
                raise OSError(f"{self._path}: a short transfer at {offset}")

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(piece, range(0, self._bytes, PIECE)))
        if sync:
            os.fsync(file)
        os.close(file)


class Busy:
    """A training that computes and touches little memory, on all cores."""

    def __init__(self) -> None:
        self._one, self._other = torch.randn(2, 640, 640)

    def step(self) -> None:
        torch.mm(self._one, self._other)

    def seconds_a_step(self, seconds: float) -> float:
        steps, began = 0, time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds:
            self.step()
            steps += 1
        return passed / steps
