"""The `slurmopt` command: a table of subcommands, each importing its work when called.

Exit statuses: 0 done · 1 it failed · 2 bad input · 130 interrupted · 141 nobody reads the output any more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module

from slurmopt import __version__
from slurmopt.errors import InputError, SlurmoptError, one_line, with_place

COMMANDS = {
    "launch": ("slurmopt.launch", "compose a config, check it against the cluster and submit it"),
    "status": ("slurmopt.sweeps.status", "how runs and sweeps are: state, progress, why one waits or failed"),
    "logs": ("slurmopt.sweeps.logs", "what the ranks wrote; --errors shows the first that failed"),
    "results": ("slurmopt.sweeps.results", "a sweep's best points, and what each axis does; tables and pictures"),
    "history": ("slurmopt.runs.history", "the story of a run: its attempts, why each ended, what that cost"),
    "retry": ("slurmopt.retry", "let runs that failed go on, with changed needs"),
    "cancel": ("slurmopt.sweeps.cancel", "stop a run, a sweep or points of it"),
    "throttle": ("slurmopt.sweeps.throttle", "how many array tasks of a sweep may run at a time"),
    "tend": ("slurmopt.sweeps.tend", "bring back runs that nobody brings back; for cron, or --watch"),
    "list": ("slurmopt.sweeps.listing", "all runs and sweeps, newest first"),
    "checkpoint": ("slurmopt.checkpoint_command.main", "what a run has saved: list, verify, fetch, export, prune"),
    "completion": ("slurmopt.completion", "shell completion for bash, zsh and fish"),
}
"""Name → the module whose `main(argv)` does it, and a line of help."""

_LONGEST = 1000
"""Characters of an error; somebody's value of 70,000 would hide what is wrong with it."""

_HIDDEN = {"_complete": "slurmopt.completion_words"}


def main(argv: list[str] | None = None) -> int:
    """Runs one subcommand and returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    # A log may hold any character, and a terminal may know only some.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    return guarded(lambda: _dispatch(words))


def guarded(work: Callable[[], int]) -> int:
    """Calls `work`; errors that slurmopt or the system raised become their lines on stderr and an exit status."""
    try:
        _check_folder()
        status = work()
        sys.stdout.flush()
        return status
    except SlurmoptError as error:
        return _say(str(error), error.exit_status)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Python flushes stdout once more at exit, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _say(with_place(error), 1)
    except RecursionError:  # configs, JSON and overrides of some thousand brackets, wherever they are looked at
        return _say("a config, an override or a file of the run folder is nested too deeply", InputError.exit_status)


def _check_folder() -> None:
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise InputError("the folder you stand in is gone; cd to one that is there") from error


def _say(message: str, status: int) -> int:
    for line in message.splitlines() or [""]:
        shown = one_line(line)
        print(f"slurmopt: error: {shown if len(shown) <= _LONGEST else shown[:_LONGEST] + ' …'}", file=sys.stderr)
    return status


def _dispatch(words: list[str]) -> int:
    name = words[0] if words else "--help"
    if name in ("-h", "--help", "help"):
        print(_help())
        return 0
    if name == "--version":
        print(f"slurmopt {__version__}")
        return 0
    module = _HIDDEN[name] if name in _HIDDEN else _module(name)
    status: int = import_module(module).main(words[1:])
    return status


def _module(name: str) -> str:
    if name not in COMMANDS:
        from slurmopt.config.check import did_you_mean

        hint = did_you_mean(name, COMMANDS)
        raise InputError(f"no command {name!r}{hint}; valid: {', '.join(COMMANDS)}")
    return COMMANDS[name][0]


def _help() -> str:
    width = max(map(len, COMMANDS))
    table = "\n".join(f"  {name:{width}}  {line}" for name, (_, line) in COMMANDS.items())
    return f"""usage: slurmopt COMMAND [words]     one Hydra config becomes a GPU training that Slurm cannot lose

{table}

slurmopt COMMAND --help says more. RUN is a name (its latest run), NAME/ID, an ID or the start of one, a folder,
a Slurm job id, or nothing for the latest run. A sweep is named alike; its points are SWEEP/17, SWEEP/3-9.

example: slurmopt launch +experiment=quickstart"""
