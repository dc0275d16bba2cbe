"""Permutation: the order of an epoch, a shuffle of range(size) that is reproducible and needs no memory."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np


class Permutation:
    """A shuffle of range(size) that depends only on (seed, epoch); any part can be computed without the rest.

    A large shuffle is a Feistel network of keyed rounds on the next power of two; a value outside of `size` is permuted
    again until it is inside (Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002), on average less than
    twice. On few bits such networks do not reach all shuffles uniformly, so a small one sorts by a keyed hash instead.

    It uses only 64-bit integer arithmetic, since a saved position is valid only while the order stays the same:
    torch.randperm may differ between versions and devices, as may NumPy's Generator.permutation, and both hold the
    whole permutation in memory, 8 GB for a billion samples.
    """

    NAME = "keyed-1"  # saved in every checkpoint: change it with the arithmetic
    SMALL = 2**16

    def __init__(self, size: int, seed: int, epoch: int) -> None:
        digest = hashlib.sha512(f"{self.NAME} {seed} {epoch}".encode()).digest()
        self._keys = np.frombuffer(digest, dtype="<u8").astype(np.uint64)  # 8 rounds
        self._size = size
        bits = (size - 1).bit_length()
        self._low, self._high = np.uint64(bits // 2), np.uint64(bits - bits // 2)
        self._sorted = self._sort() if size <= self.SMALL else None

    def __call__(self, places: Any) -> Any:
        """The values at `places` (uint64, shape [n], each below the size), as a new array of the same type."""
        if self._sorted is not None:
            return self._sorted[places]
        values = self._permute(places)
        outside = np.flatnonzero(values >= self._size)
        while outside.size:
            values[outside] = self._permute(values[outside])
            outside = outside[values[outside] >= self._size]
        return values

    def _sort(self) -> Any:
        values: Any = np.arange(self._size, dtype=np.uint64)
        for key in self._keys:
            values = _mix(values ^ key)
        return np.argsort(values, kind="stable").astype(np.uint64)

    def _permute(self, values: Any) -> Any:
        """Each round is invertible: it changes one half by the upper bits of the hash of the other half."""
        all_bits = np.uint64(64)
        low, high = values & ((np.uint64(1) << self._low) - np.uint64(1)), values >> self._low
        for even, odd in self._keys.reshape(-1, 2):
            low = low ^ (_mix(high ^ even) >> (all_bits - self._low))
            high = high ^ (_mix(low ^ odd) >> (all_bits - self._high))
        return (high << self._low) | low


def _mix(values: Any) -> Any:
    """A bijection of 64 bits in which each input bit changes half of the output: the finaliser of splitmix64
    (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014)."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
