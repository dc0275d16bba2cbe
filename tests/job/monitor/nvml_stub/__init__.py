"""A stub of NVML for tests: a `libnvidia-ml.so.1` in C that tells what a scenario says, behind the real nvidia-ml-py.

    from job.monitor.nvml_stub import nvml  # noqa: F401 - in a conftest.py; tests below it take the fixture

    def test_…(nvml):
        stub = nvml("h100")                      # scenarios/h100.json; or nvml("h100", driver="550.54", gpus=8)
        subprocess.run(command, env={**os.environ, **stub.environment})
        stub.change("gpu0", util=0)              # from now on; counters go on from what they have counted
        stub.change("gpu0", event="2 8 79")      # an XID 79, two seconds after the start of NVML; a list for several

`stub.environment` sets LD_LIBRARY_PATH, so that everything in that process that loads NVML gets the stub, and
CUDA_VISIBLE_DEVICES. `stub.source()` starts a process that holds the sampler's GPU source and does what it is told:

    with nvml("h100").source() as source:
        source.read()["gpu0.util"]
        source.events()

Scenarios are simulated, not recorded, which each file says in `"simulated": true`. A file has the keys

    like        another scenario that this one changes
    driver      the driver's version
    gpus        how many GPUs
    gpu         key → value of every GPU, for the keys at the head of nvml.c; `fields`, `gpm` and `errors` are objects
                {"83": [type, base, rate per second]}, {"2": percent}, {"nvmlDeviceGetName": return code}
    gpu0, …     the same for one GPU; "gpu0.mig1" for a MIG slice
    nvml        key → value of the library, such as init (an error)
    without     functions that the library does not have

In strings "{n}" is the number of the GPU.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
SCENARIOS = sorted(path.stem for path in (HERE / "scenarios").glob("*.json"))


@functools.cache
def library(without: tuple[str, ...] = ()) -> Path:
    """The folder of the compiled stub, without some functions. Other processes of a test run share it."""
    if shutil.which("gcc") is None:
        pytest.skip("NOT TESTED: no gcc here, which makes the stub of NVML")
    source = HERE / "nvml.c"
    mark = hashlib.sha256(source.read_bytes() + repr(without).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"slurmopt-nvml-stub-{os.getuid()}-{mark}"
    target = folder / "libnvidia-ml.so.1"
    if target.exists():
        return folder
    folder.mkdir(mode=0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        exported = Path(scratch, "exported")
        exported.write_text(f"{{ global: nvml*; local: {''.join(f'{name}; ' for name in without)}*; }};")
        built = Path(scratch, "library")
        command = ["gcc", "-shared", "-fPIC", "-O1", f"-Wl,-soname,{target.name}", f"-Wl,--version-script={exported}"]
        subprocess.run([*command, "-o", str(built), str(source)], check=True)
        built.chmod(0o755)
        built.replace(target)
    return folder


def scenario(name: str) -> dict[str, Any]:
    """A scenario's file, with those that it changes."""
    own: dict[str, Any] = json.loads((HERE / "scenarios" / f"{name}.json").read_text(encoding="utf-8"))
    assert own.pop("simulated") is True, f"{name}: say that it is simulated"
    base = scenario(own.pop("like")) if "like" in own else {}
    return _merged(base, own)


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    both = dict(base)
    for key, value in own.items():
        both[key] = _merged(both[key], value) if isinstance(value, dict) and isinstance(both.get(key), dict) else value
    return both


class Stub:
    """A scenario that plays: the file that the library reads, and the environment of the processes that use it."""

    def __init__(self, folder: Path, name: str, changes: dict[str, Any]) -> None:
        self.scenario = _merged(scenario(name), changes)
        self.file = folder / "nvml.txt"
        self._write()

    @property
    def environment(self) -> dict[str, str]:
        devices = [str(number) for number in range(self.scenario["gpus"])]
        return {
            "LD_LIBRARY_PATH": str(library(tuple(self.scenario.get("without", ())))),
            "NVML_STUB": str(self.file),
            "CUDA_VISIBLE_DEVICES": ",".join(devices),
        }

    def change(self, scope: str, **values: Any) -> None:
        """Changes what `scope` (gpu, gpu0, gpu0.mig1, nvml) says, from now on. None takes a key away."""
        self.scenario = _merged(self.scenario, {scope: values})
        self._write()

    def source(self, *before: str, **environment: str) -> Process:
        """A process that holds the GPU source, with further variables of its environment; `before` starts it."""
        return Process([*before], {**os.environ, **self.environment, **environment})

    def _write(self) -> None:
        beside = self.file.with_suffix(".new")
        beside.write_text("".join(f"{line}\n" for line in self._lines()), encoding="utf-8")
        beside.replace(self.file)

    def _lines(self) -> Iterator[str]:
        count = self.scenario["gpus"]
        yield f"nvml.count {count}"
        yield f"nvml.driver {self.scenario['driver']}"
        yield from _flat("nvml", self.scenario.get("nvml", {}), 0)
        for number in range(count):
            whole = _merged(self.scenario.get("gpu", {}), self.scenario.get(f"gpu{number}", {}))
            yield from _flat(f"gpu{number}", whole, number)
        for scope, values in self.scenario.items():
            if ".mig" in scope:
                yield from _flat(scope, values, int(scope.partition(".")[0].removeprefix("gpu")))


def _flat(scope: str, values: dict[str, Any], number: int) -> Iterator[str]:
    for key, value in values.items():
        if key == "fields":
            for field, counter in value.items():
                name = field if "." in field else f"{field}.0"
                yield from _counter(f"{scope}.field.{name}", counter)
        elif key == "gpm" and isinstance(value, dict):
            yield f"{scope}.gpm 1"
            for metric, percent in value.items():
                yield from _counter(f"{scope}.gpm.{metric}", percent)
        elif key in ("errors", "delays"):
            yield from (f"{scope}.{key[:-1]}.{function} {text}" for function, text in value.items() if text is not None)
        elif key == "event":
            for event in [value] if isinstance(value, str) else value:
                yield f"{scope}.event.{int.from_bytes(hashlib.sha256(event.encode()).digest()[:3], 'big')} {event}"
        elif value is not None:
            yield f"{scope}.{key} {str(value).replace('{n}', str(number))}"


def _counter(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield f"{key} 1 0 0"
        yield f"{key}.error {value['error']}"
    elif value is not None:
        yield f"{key} {' '.join(map(str, value)) if isinstance(value, list) else value}"


class Process:
    """The sampler's source of GPUs in a process of its own: `read`, `events`, `absent`, `facts`, `close`."""

    def __init__(self, before: list[str], environment: dict[str, str]) -> None:
        command = [*before, sys.executable, str(HERE / "drive.py"), "slurmopt.job.monitor.sources.nvidia"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=tempfile.gettempdir(),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def read(self, after: float = 0.0) -> dict[str, float]:
        """What the source reads, `after` seconds from now by the clock of its process."""
        values: dict[str, float] = self.ask(f"read {after}")
        return values

    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("events")
        return found

    def absent(self) -> dict[str, str]:
        columns: dict[str, str] = self.ask("absent")
        return columns

    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("facts")
        return found

    def close(self) -> list[dict[str, Any]]:
        """Closes the source; returns its last events."""
        found: list[dict[str, Any]] = self.ask("close")["events"]
        return found

    def ask(self, words: str) -> Any:
        """One call of the source. An assertion fails with its traceback if it raises."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(words + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"raised": "the process has ended"}')
        assert "raised" not in answer, answer["raised"]
        return answer["returned"]

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture
def nvml(tmp_path: Path) -> Callable[..., Stub]:
    """Makes a stub of a scenario, with changes to it: `nvml("h100", gpus=1)`."""

    def make(name: str, **changes: Any) -> Stub:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        folder.chmod(0o755)
        return Stub(folder, name, changes)

    return make
