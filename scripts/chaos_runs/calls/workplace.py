"""Where `scripts/chaos calls` disturbs commands: a preloaded library, a warm process, a folder, what Slurm has."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
KILL, TORN, LOST = -1, -2, -3
"""As in calls.c; above 0 it is an errno."""
_INHERITED = ("SLURM", "SBATCH", "SRUN", "PMI")
_SECONDS = 60.0
"""A command that takes longer hangs."""
_TASKS = re.compile(r"(\d+)(?:_(?:(\d+)|\[([^\]%]*)(?:%(\d+))?\]))?")


@dataclass(frozen=True)
class Call:
    """One line of the library's report."""

    number: int
    kind: str
    """r: it reads; w: it writes; x: a command is about to be executed; y: a command has ended."""
    name: str
    path: str
    hit: bool

    def __str__(self) -> str:
        return f"call {self.number}, {self.name} {self.path}"


@dataclass(frozen=True)
class Said:
    """What a command said."""

    status: int | None
    """Its exit status, minus the signal that ended it, None where it hung."""
    out: str
    err: str
    calls: list[Call]

    @property
    def hit(self) -> Call | None:
        return next((call for call in self.calls if call.hit), None)


@dataclass(frozen=True)
class Job:
    """A job that Slurm has not ended, with all tasks of an array that one line of squeue stands for."""

    id: str
    tasks: frozenset[int]
    throttle: int
    minutes: str
    comment: str
    command: str


class CannotBuild(Exception):
    """There is no C compiler here."""


def build(folder: Path) -> Path:
    """The library, made by the system's compiler, which is installed where it is missing and we are root on Debian."""
    library = folder / "calls.so"
    if shutil.which("cc") is None and os.getuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "gcc", "libc6-dev"]
        subprocess.run(install, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, stdout=sys.stderr, check=False)
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise CannotBuild("NOT DONE: scripts/chaos calls needs a C compiler (apt-get install gcc libc6-dev)")
    argv = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(HERE / "calls.c"), "-ldl"]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise CannotBuild(f"NOT DONE: the preloaded library cannot be built: {done.stderr.strip()[-500:]}")
    return library


class Workplace:
    """One project folder with a warm process of its own; to be used in a with block."""

    def __init__(self, folder: Path, library: Path, conf: Path) -> None:
        self.project, self.conf = folder, conf
        self.runs, self._cache, self._said = folder / "runs", folder / "cache", folder.with_name(f"{folder.name}.said")
        for part in (folder, self._said):
            part.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_INHERITED)}
        places = {"XDG_CACHE_HOME": str(self._cache), "XDG_STATE_HOME": str(folder / "state")}
        self._slurm = {**kept, "SLURM_CONF": str(conf), **places}
        self._warm = subprocess.Popen(
            [sys.executable, str(HERE / "process.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**self._slurm, "LD_PRELOAD": str(library)},
        )
        assert self._answer().strip() == "ready"

    def __enter__(self) -> Workplace:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._warm.stdin is not None
        self._warm.stdin.close()
        self._warm.wait(60)

    def _answer(self) -> str:
        assert self._warm.stdout is not None
        return self._warm.stdout.readline()

    def slurmopt(self, argv: Sequence[str], call: int = 0, fault: int = 0, locks: bool = True) -> Said:
        """One command, disturbed at its `call`th call (0: not at all); `locks`: whether the file system has them."""
        shutil.rmtree(self._cache, ignore_errors=True)
        out, err, report = (self._said / name for name in ("out", "err", "report"))
        report.unlink(missing_ok=True)
        asked = {
            "argv": list(argv), "out": str(out), "err": str(err), "seconds": _SECONDS, "report": str(report),
            "roots": [str(self.runs), str(self._cache)], "call": call, "fault": fault, "locks": locks,
        }  # fmt: skip
        assert self._warm.stdin is not None
        self._warm.stdin.write(json.dumps(asked) + "\n")
        self._warm.stdin.flush()
        status = json.loads(self._answer())["status"]
        calls = [_call(line) for line in report.read_text().splitlines()] if report.exists() else []
        return Said(status, out.read_text(), err.read_text(), calls)

    def slurm(self, *argv: str, check: bool = True) -> str:
        """One of Slurm's commands; its output."""
        done = subprocess.run(argv, env=self._slurm, capture_output=True, text=True, cwd=self.project, timeout=60)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def jobs(self) -> list[Job]:
        """Those with a script of this project that Slurm has not ended."""
        lines = self.slurm("squeue", "--noheader", "--all", "--format=%i|%l|%k|%o").splitlines()
        rows = [line.split("|", 3) for line in lines]
        return [_job(*row) for row in rows if row[3].startswith(f"{self.runs}/")]

    def clear(self) -> None:
        """No job and no folder is left."""
        if jobs := [job.id for job in self.jobs()]:
            self.slurm("scancel", *jobs)
        shutil.rmtree(self.runs, ignore_errors=True)

    def keep(self, name: str) -> None:
        """Remembers the runs as they are."""
        shutil.copytree(self.runs, self._said / name, symlinks=True)

    def restore(self, name: str) -> None:
        shutil.rmtree(self.runs, ignore_errors=True)
        shutil.copytree(self._said / name, self.runs, symlinks=True)

    def files(self) -> set[str]:
        """All below the runs folder, and what looks temporary in the cache."""
        cached = [path for path in self._cache.rglob(".*") if path.is_file()]
        return {str(path.relative_to(self.project)) for path in [*self.runs.rglob("*"), *cached]}


def _call(line: str) -> Call:
    number, kind, name, path = line.split(" ", 3)
    return Call(int(number), kind, name, path.removesuffix(" *"), path.endswith(" *"))


def _job(name: str, limit: str, comment: str, command: str) -> Job:
    match = _TASKS.fullmatch(name)
    assert match is not None, name
    tasks = {int(match[2])} if match[2] else _spans(match[3] or "")
    return Job(match[1], frozenset(tasks), int(match[4] or 0), limit, comment, command)


def _spans(text: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found
