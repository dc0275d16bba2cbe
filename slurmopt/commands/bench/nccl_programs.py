"""Runs the programs of nccl-tests on this machine, and adds their rows to a recording."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from slurmopt.collectives import nccl_tests
from slurmopt.collectives.definitions import COLLECTIVES
from slurmopt.collectives.options import BenchOptions
from slurmopt.collectives.recording import Recording
from slurmopt.errors import InputError, one_line, why_failed

_SECONDS = 600.0


def find(folder: Path | None) -> Mapping[str, str]:
    """Collective → its program in `folder`, or in PATH. InputError where a folder was given and has none."""
    names = {name: collective.program for name, collective in COLLECTIVES.items()}
    path = None if folder is None else os.pathsep.join(map(str, (folder, folder / "build")))
    found = {name: where for name, program in names.items() if (where := shutil.which(program, path=path))}
    if folder is not None and not found:
        raise InputError(
            f"bench collectives: --nccl-tests {one_line(str(folder))} has no program of nccl-tests that may be "
            f"executed; valid: a folder with {', '.join(names.values())}"
        )
    return found


def add(recording: Recording, programs: Mapping[str, str], options: BenchOptions) -> None:
    """Runs the programs of the collectives that are measured, on as many GPUs as there are ranks; a program that fails
    becomes a note."""
    for name in options.collectives:
        if name in programs:
            for sizes in _ranges(options.sizes):
                _add_one(recording, name, programs[name], sizes, options)


def _ranges(sizes: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """(first, last, factor): sizes with one common factor need one start of the program."""
    factors = {after / before for before, after in pairwise(sizes)}
    if len(factors) == 1 and (factor := factors.pop()) == int(factor):
        yield sizes[0], sizes[-1], int(factor)
        return
    for size in sizes:
        yield size, size, 2


def _add_one(recording: Recording, name: str, program: str, sizes: tuple[int, int, int], options: BenchOptions) -> None:
    first, last, factor = sizes
    words = [program, "-b", str(first), "-e", str(last), "-f", str(factor), "-g", str(recording.world)]
    words += ["-n", str(options.iterations), "-w", str(options.warmup)]
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
        rows = nccl_tests.read(f"{done.stdout}\n{done.stderr}", Path(program).name, name).rows
    except subprocess.TimeoutExpired:
        recording.notes.append(f"{one_line(program)} took over {_SECONDS:.0f} s and was ended")
    except OSError as error:
        recording.notes.append(f"{one_line(program)}: {why_failed(error)}")
    except InputError as error:
        recording.notes.append(f"{one_line(program)} measured nothing: {error}")
    else:
        recording.rows += rows
        if done.returncode:
            recording.notes.append(f"{one_line(program)} ended with status {done.returncode}")
