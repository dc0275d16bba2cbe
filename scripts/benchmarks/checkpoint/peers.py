"""slurmopt and its peers behind one face: save, wait until it is on disk, restore."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import torch

Wait = Callable[[], None]


def nothing() -> None:
    """Nothing left to wait for."""


class Peer(Protocol):
    """One library, set up as well as it can be."""

    def save(self, step: int) -> Wait:
        """Returns when training may go on; what it returns waits until all is on disk, synced."""
        ...

    def restore(self, take: Callable[[Wait], None]) -> None:
        """Has the last save loaded into the live state by calling `take` with what is to be timed."""
        ...

    def close(self) -> None:
        """Ends its threads and processes."""
        ...


class Slurmopt:
    """The Checkpointer with one tier, a folder."""

    def __init__(self, state: dict[str, Any], folder: Path, buffers: int = 2) -> None:
        self._state, self._folder, self._buffers, self._attempt = state, folder, buffers, 0
        self._open()
        self._checkpointer.restore(state)

    def _open(self) -> None:
        from slurmopt.checkpoint import Checkpointer
        from slurmopt.job.facts.rank_facts import rank_facts
        from slurmopt.job.worker.current_run import CurrentRun
        from slurmopt.run_folder.layout import RunFolder

        run = CurrentRun(RunFolder(self._folder), self._attempt, rank_facts())
        config = {"buffers": self._buffers, "shared": {"every": 1, "keep": 1}}
        self._checkpointer = Checkpointer(config, run)

    def save(self, step: int) -> Wait:
        if not self._checkpointer.save(step, self._state, force=True):
            raise RuntimeError("no snapshot was taken")
        return self._wait

    def _wait(self) -> None:
        if not self._checkpointer.wait():
            raise RuntimeError("the save failed")

    def restore(self, take: Callable[[Wait], None]) -> None:
        """As the next attempt does."""
        self._checkpointer.close()
        self._attempt += 1
        self._open()

        def load() -> None:
            if not self._checkpointer.restore(self._state):
                raise RuntimeError("nothing was restored")

        take(load)

    def close(self) -> None:
        self._checkpointer.close()


class SingleBuffer(Slurmopt):
    """With `checkpoint.buffers=1`."""

    def __init__(self, state: dict[str, Any], folder: Path) -> None:
        super().__init__(state, folder, buffers=1)


class Dcp:
    """torch.distributed.checkpoint.async_save; its staging memory is kept from save to save."""

    kind, shared = "THREAD", False

    def __init__(self, state: dict[str, Any], folder: Path) -> None:
        import torch.distributed as dist
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        self._state, self._folder, self._last = state, folder, folder
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
        self._stager = DefaultStager(StagingOptions(False, self.shared, False, False))

    def save(self, step: int) -> Wait:
        from torch.distributed import checkpoint as dcp
        from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

        if self._last != self._folder:
            shutil.rmtree(self._last)
        self._last = self._folder / f"step-{step}"
        future = dcp.async_save(
            self._state,
            storage_writer=dcp.FileSystemWriter(self._last, thread_count=2),
            async_checkpointer_type=AsyncCheckpointerType[self.kind],
            async_stager=self._stager,
        )

        def wait() -> None:
            future.result()
            sync_folder(self._last)

        return wait

    def restore(self, take: Callable[[Wait], None]) -> None:
        from torch.distributed import checkpoint as dcp

        forget(self._last)
        take(lambda: dcp.load(self._state, checkpoint_id=self._last))

    def close(self) -> None:
        self._stager.close()


class DcpProcess(Dcp):
    """… with the process that it keeps for writing."""

    kind, shared = "PROCESS", True


class TorchSnapshot:
    """torchsnapshot's async_take, synced by us: it does not."""

    def __init__(self, state: dict[str, Any], folder: Path) -> None:
        self._state, self._folder, self._last = state, folder, folder
        self._snapshot = import_module("torchsnapshot").Snapshot

    def save(self, step: int) -> Wait:
        if self._last != self._folder:
            shutil.rmtree(self._last)
        self._last = self._folder / f"step-{step}"
        pending = self._snapshot.async_take(str(self._last), self._state)

        def wait() -> None:
            pending.wait()
            sync_files(self._last)

        return wait

    def restore(self, take: Callable[[Wait], None]) -> None:
        forget(self._last)
        take(lambda: self._snapshot(str(self._last)).restore(self._state))

    def close(self) -> None:
        """It has nothing running between saves."""


class TorchSave:
    """torch.save into one file, synced by us, and torch.load with weights_only."""

    def __init__(self, state: dict[str, Any], folder: Path) -> None:
        self._state, self._folder = state, folder

    def save(self, step: int) -> Wait:
        states = {name: each.state_dict() for name, each in self._state.items()}
        with open(self._folder / "state.new", "wb") as file:
            torch.save(states, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._folder / "state.new", self._folder / "state.pt")
        sync_folder(self._folder)
        return nothing

    def restore(self, take: Callable[[Wait], None]) -> None:
        forget(self._folder)

        def load() -> None:
            states = torch.load(self._folder / "state.pt", weights_only=True)
            for name, each in self._state.items():
                each.load_state_dict(states[name])

        take(load)

    def close(self) -> None:
        """It has nothing running."""


class Nobody:
    """Saves nothing: what the training takes by itself."""

    def __init__(self, state: dict[str, Any], folder: Path) -> None:
        """There is nothing to set up."""

    def save(self, step: int) -> Wait:
        return nothing

    def restore(self, take: Callable[[Wait], None]) -> None:
        """There is nothing to restore."""

    def close(self) -> None:
        """There is nothing to end."""


PEERS: dict[str, Callable[[dict[str, Any], Path], Peer]] = {
    "nobody": Nobody,
    "slurmopt": Slurmopt,
    "slurmopt, one buffer": SingleBuffer,
    "DCP async, thread": Dcp,
    "DCP async, process": DcpProcess,
    "torchsnapshot": TorchSnapshot,
    "torch.save": TorchSave,
}
NEEDS = {"torchsnapshot": "torchsnapshot"}
"""What is imported from where it can be found, and is no part of torch."""


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def sync_files(folder: Path) -> None:
    """Every file and every folder below, and `folder`'s own name."""
    for path in (*folder.rglob("*"), folder, folder.parent):
        sync_folder(path)


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def forget(folder: Path) -> None:
    """Takes the files out of the page cache, so that loading has to read them, as after a restart elsewhere."""
    for path in files(folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
