"""`slurmopt monitor -- COMMAND`: measures a job that slurmopt did not launch, from inside its batch script.

It makes a run folder as a launch does, measures all nodes of the allocation while the command runs, and writes the
report. The command gets the signals that this process gets, and its exit status is this command's. Where no folder can
be made, a line says why, and the command runs all the same.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from slurmopt.config.monitor import Monitor, sampling_of
from slurmopt.errors import InputError, SlurmoptError, one_line, with_place
from slurmopt.report.in_own_process import write_report
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.process import module_words
from slurmopt.runs import foreign, index, options
from slurmopt.runs.foreign import Allocation
from slurmopt.slurm.hostlist import expand

_SAMPLER_SECONDS = 5.0
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    words, command = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    args = parser().parse_args(words)
    if not command:
        raise InputError("monitor: no command; write it after --, as in: slurmopt monitor -- python train.py")
    if "SLURM_STEP_ID" in os.environ and os.environ.get("SLURM_STEP_NUM_TASKS", "1") != "1":
        raise InputError("monitor: this is one of several tasks of srun; start it once: slurmopt monitor -- srun …")
    sampling = sampling_of(Monitor(every=args.every)).to_json_arg()
    given = foreign.allocation(os.environ)
    name = args.name or os.environ.get("SLURM_JOB_NAME") or Path(command[0]).name
    try:
        run = foreign.make(args.folder, name, command, given)
    except (SlurmoptError, OSError) as error:
        why = with_place(error) if isinstance(error, OSError) else str(error)
        print(f"slurmopt: not monitored: {one_line(why)}", file=sys.stderr, flush=True)
        os.execvp(command[0], command)  # noqa: S606  it needs no shell
    print(f"slurmopt: monitored as {run.name}/{run.id}", file=sys.stderr, flush=True)
    index.note(run)
    status = _run(run, sampling, command, given)
    _conclude(run, status)
    return status


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt monitor`."""
    parser = options.parser("monitor", "Measure a job that slurmopt did not launch: slurmopt monitor -- COMMAND")
    parser.usage = "slurmopt monitor [--name NAME] [--every TIME] [--folder DIR] -- COMMAND [words]"
    parser.add_argument("--name", help="the name of the run (default: that of the job, else of the command)")
    parser.add_argument("--every", default="5s", metavar="TIME", help="the interval of measurements (default: 5s)")
    return parser


def _run(run: RunFolder, sampling: str, command: list[str], given: Allocation) -> int:
    """The exit status of the command."""
    words = [sys.executable, *module_words("slurmopt.job.worker.monitored"), str(run.path), sampling, "--", *command]
    early: list[int] = []
    children: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        if children:
            children[0].send_signal(number)
        else:
            early.append(number)

    signal.signal(signal.SIGINT, lambda *_: None)  # a terminal gives it to the command too
    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    with _other_nodes(run, sampling, given):
        children.append(subprocess.Popen(words))
        _noted(lambda: foreign.begin(run, given, children[0].pid))
        for came in early:
            children[0].send_signal(came)
        status = children[0].wait()
    return status if status >= 0 else 128 - status


@contextlib.contextmanager
def _other_nodes(run: RunFolder, sampling: str, given: Allocation) -> Iterator[None]:
    """Measures the other nodes of the allocation, by a step that takes nothing from the job's own."""
    here = os.environ.get("SLURMD_NODENAME")
    others = [node for node in _nodes(given) if node != here] if here else []
    if not others:
        yield
        return
    step = [
        "srun", "--overlap", "--quiet", f"--nodes={len(others)}", f"--ntasks={len(others)}", "--ntasks-per-node=1",
        f"--nodelist={','.join(others)}", "--kill-on-bad-exit=0", "--output=none", "--export=ALL",
    ]  # fmt: skip
    words = [*step, sys.executable, *module_words("slurmopt.job.monitor.on_node"), str(run.path), sampling]
    environ = {name: value for name, value in os.environ.items() if name not in _OF_THE_JOBS_STEPS}
    try:
        samplers = subprocess.Popen(words, stdin=subprocess.PIPE, env=environ, start_new_session=True)
    except OSError as error:
        print(f"slurmopt: the other nodes are not measured: srun: {error.strerror}", file=sys.stderr, flush=True)
        yield
        return
    try:
        yield
    finally:
        _end(samplers)


_OF_THE_JOBS_STEPS = ("SLURM_NTASKS_PER_NODE", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_CPU_BIND", "SLURM_DISTRIBUTION")
"""What srun would take from the batch script's own options."""


def _nodes(given: Allocation) -> list[str]:
    try:
        return expand(given.nodes)
    except ValueError:
        return []


def _end(samplers: subprocess.Popen[bytes]) -> None:
    if samplers.stdin is not None:
        samplers.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        samplers.wait(_SAMPLER_SECONDS)
        return
    samplers.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        samplers.wait(_SAMPLER_SECONDS)
        return
    samplers.kill()


def _noted(note: Callable[[], None]) -> None:
    """Writes to the journal; where that fails, a line says so, and the command runs on."""
    try:
        note()
    except OSError as error:
        print(f"slurmopt: {one_line(with_place(error))}", file=sys.stderr, flush=True)


def _conclude(run: RunFolder, status: int) -> None:
    """Notes the end and writes the report; what goes wrong with that is told, and changes nothing."""
    _noted(lambda: foreign.end(run, status))
    write_report(run)
