"""Devices that are neither a CPU nor CUDA's: what lies there is copied by torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from slurmopt.checkpoint.snapshot import pinning
from slurmopt.checkpoint.snapshot.arena import Arena

# Simulated: torch's seam for devices of others, with host memory behind it. Its tensors have the address 0.
_NPU = """
import sys, warnings
warnings.filterwarnings("ignore")
import torch
from pathlib import Path
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
from checkpoint.ranks import alone
from slurmopt.checkpoint import Checkpointer

_setup_privateuseone_for_python_backend("npu")

def put(host):
    made = torch._C._acc.create_empty_tensor(host.shape, host.dtype)
    made.host = host
    return made

def there(tensor):
    return tensor.host if tensor.device.type == "npu" else tensor

@torch.library.impl("aten::detach", "privateuseone")
def detach(self):
    return put(self.host)

@torch.library.impl("aten::_copy_from", "privateuseone")
def copy_from(self, target, non_blocking=False):
    there(target).copy_(there(self))
    return target

config, folder = {"shared": {"every": 1}}, Path(sys.argv[1])
state = {"there": put(torch.arange(3000.0)), "here": torch.arange(5)}
with Checkpointer(config, alone(folder, 0)) as saving:
    assert saving.restore(dict(state)) == 0
    assert saving.save(1, state) and saving.wait()
state = {"there": put(torch.zeros(3000)), "here": torch.zeros(5, dtype=torch.long)}
with Checkpointer(config, alone(folder, 1)) as saving:
    assert saving.restore(state) == 1
assert torch.equal(state["there"].host, torch.arange(3000.0))
assert torch.equal(state["here"], torch.arange(5))
print("as it was")
"""


def test_a_device_that_is_not_cuda_s_is_saved_and_restored(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _NPU, str(folder)],
        env={"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "as it was\n"), done.stderr


class Runtime:
    """Simulated: CUDA's runtime where pinning fails. It remembers the last error until it is asked for it."""

    def __init__(self) -> None:
        self.last = 0

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        self.last = 2
        return 2

    def cudaGetLastError(self) -> int:  # noqa: N802
        error, self.last = self.last, 0
        return error


def test_a_failed_pinning_leaves_no_error_for_the_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(pinning, "_loaded", lambda maps: ["/opt/cuda/lib64/libcudart.so.12"])
    monkeypatch.setattr(pinning.ctypes, "CDLL", lambda path: runtime)
    arena = Arena(4096, 1)
    pinning.pin(arena)
    arena.close()
    assert runtime.last == 0, "the next kernel would have failed with it"
    assert "snapshots are not pinned: CUDA error 2" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["libcudart-d0da41ae.so.11.0", "libcudart.so.12", "libamdhip64.so.6"])
def test_the_runtime_is_found_among_what_is_loaded(name: str) -> None:
    maps = "".join(
        f"7f12{page:04x}000-7f12{page:04x}fff r-xp 00000000 08:01 42   {path}\n"
        for page, path in enumerate(
            ["/usr/lib/libc.so.6", f"/env/torch/lib/{name}", f"/env/torch/lib/{name}", "[heap]"]
        )
    )
    assert pinning._loaded(maps) == [f"/env/torch/lib/{name}"]
