"""Calls `slurmopt` in a process of its own for each command line, without starting Python anew: what it said, for how
long, with how much memory.

`python -m chaos_runs.looks.looker` reads a JSON object a line, {"words", "cwd", "seconds"}, forks, and answers with
one.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType

ADDRESSES = 6 << 30
"""Bytes of addresses that a command may take: more would harm whoever else works on this machine."""
SECONDS, MIB = 5.0, 400.0
"""What a command may take; Python and all modules are there already."""
STATUSES = (0, 1, 2, 124, 130, 141)
"""As `slurmopt.exit_status` documents them."""
_SHOWN = 1 << 20
_POLL = 0.002


def environment() -> dict[str, str]:
    """This one, without what leads to Slurm, to S3, or to the runs of whoever calls this."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "AWS"))}
    return {**kept, "XDG_STATE_HOME": "/proc/nowhere"}


@dataclass(frozen=True)
class Seen:
    """What came of one command line. `status` is -9 where it had to be killed; `out` and `err` are at most a MiB."""

    status: int
    out: str
    err: str
    seconds: float
    """Of the processor: others may work on this machine."""
    mib: float

    def wrong(self, seconds: float = SECONDS, mib: float = MIB) -> str:
        """What must not be: a traceback, an exit status that nobody documented, too long, too much; else empty."""
        if "Traceback (most recent call last)" in self.err:
            return f"traceback: {self.err.strip().splitlines()[-1]}"
        if self.status == -signal.SIGKILL:
            return "it did not end"
        if self.seconds > seconds:
            return f"it took {self.seconds:.1f} s"
        if self.status not in STATUSES:
            return f"exit status {self.status}: {self.err.strip()[-200:]}"
        if self.status == 2 and not self.err.strip():
            return "exit status 2, and not a word"
        return f"it took {self.mib:.0f} MiB" if self.mib > mib else ""


class Looker:
    """One process that forks for each command. A context manager."""

    def __init__(self, env: Mapping[str, str]) -> None:
        scripts = str(Path(__file__).resolve().parents[2])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos_runs.looks.looker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",  # where no slurmopt lies but the installed one
            env={
                **env,
                "PYTHONPATH": os.pathsep.join(filter(None, [scripts, env.get("PYTHONPATH")])),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )

    def __enter__(self) -> Looker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def look(self, words: Sequence[str], cwd: Path, seconds: float = 12 * SECONDS) -> Seen:
        """`slurmopt words` in `cwd`; it is killed after `seconds` of the clock."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps({"words": list(words), "cwd": str(cwd), "seconds": seconds}), file=self._process.stdin)
        self._process.stdin.flush()
        return Seen(**json.loads(self._process.stdout.readline()))


def main() -> int:
    """Answers until there is no further line."""
    _import_all()
    for line in sys.stdin:
        case = json.loads(line)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            seen = _forked(case["words"], case["cwd"], case["seconds"], out.fileno(), err.fileno())
        print(json.dumps(asdict(seen)), flush=True)
    return 0


def _import_all() -> None:
    """What the commands import only when they are called, so that no case pays for it."""
    from slurmopt.commands import COMMANDS
    from slurmopt.commands.checkpoint.main import COMMANDS as OF_CHECKPOINTS

    for module, _ in (*COMMANDS.values(), *OF_CHECKPOINTS.values()):
        import_module(module)
    for name in ("hydra", "omegaconf", "msgspec", "slurmopt.commands.complete.main"):
        import_module(name)


def _forked(words: list[str], cwd: str, seconds: float, out: int, err: int) -> Seen:
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _carry_out(words, cwd, out, err)
    status, used = _awaited(pid, began + seconds)
    took = used.ru_utime + used.ru_stime
    return Seen(os.waitstatus_to_exitcode(status), _text(out), _text(err), took, used.ru_maxrss / 1024)


def _carry_out(words: list[str], cwd: str, out: int, err: int) -> None:
    """In the child, which ends here."""
    from slurmopt.cli import main as command

    status = 70
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
        os.chdir(cwd)
        status = command(words)
    except SystemExit as error:  # argparse
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001  judged by whoever asked
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status & 0xFF)


def _awaited(pid: int, until: float) -> tuple[int, resource.struct_rusage]:
    while True:
        done, status, used = os.wait4(pid, os.WNOHANG)
        if done:
            return status, used
        if time.monotonic() > until:
            os.killpg(pid, signal.SIGKILL)
        time.sleep(_POLL)


def _text(descriptor: int) -> str:
    return os.pread(descriptor, _SHOWN, 0).decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
