"""A claim that could not be removed at its end keeps nobody out."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from slurmopt.runs.submit.lock_file import claimed


def test_a_claim_that_cannot_be_removed_is_an_error_of_nothing_and_taken_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also within the process that has left it behind, which lives: `slurmopt tend --watch`."""
    path = tmp_path / "claim"

    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched, claimed(path) as mine:
        assert mine
        left = os.readlink(path)
        patched.setattr(Path, "unlink", broken)
    assert os.readlink(path) == left
    with claimed(path) as mine:
        assert mine
        assert os.readlink(path) != left
        with claimed(path) as second:
            assert not second
    assert not os.path.lexists(path)
