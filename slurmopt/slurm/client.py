"""Runs Slurm's commands; all calls go through this module. Failures become errors with Slurm's own reason."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from slurmopt.errors import SlurmDown, SlurmMissing, SlurmRefused, SlurmUnconfigured, SlurmUnreachable, one_line
from slurmopt.slurm.environment import clean_environment

if TYPE_CHECKING:
    import subprocess

__all__ = ["Answer", "ask", "clean_environment", "run"]

# Seen with slurmctld stopped, ended, cut off, reading slurm.conf anew, or without its munged; "database" is slurmdbd
# speaking.
_UNREACHABLE = re.compile(
    r"unable to contact slurm|socket timed out|connection (refused|reset|timed out)|zero bytes were transmitted"
    r"|missing socket error|unexpected message received|message (send|receive) failure"
    r"|backup controller in standby|no route to host|authentication error|munge encode failed"
    r"|problem talking to the database|unable to access database",
    re.IGNORECASE,
)
_UNCONFIGURED = re.compile(
    r"establish a configuration source|unable to process configuration file|s_p_parse_file", re.IGNORECASE
)
_NO_ACCOUNTING = re.compile(r"accounting storage is disabled|supported accounting_storage plugin", re.IGNORECASE)
_PREFIX = re.compile(
    r"^(?:(?:sbatch|srun|squeue|sinfo|scontrol|scancel|sacct|sacctmgr|slurm_\w+): )?(?:(?:error|fatal): )?"
    r"(?:Batch job submission failed: |allocation failure: |slurm_load_\w+(?: error)?: )?"
)
_HINTS = ("Try ", "sbatch: debug", "Only 'accounting_storage")


_CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/usr/local/etc/slurm.conf")


class Answer(NamedTuple):
    """The output of a command. `sbatch --test-only` prints to standard error only."""

    stdout: str
    stderr: str


def run(
    argv: list[str],
    timeout: float,
    env: Mapping[str, str] | None = None,
    input: str | None = None,  # noqa: A002
    time_format: str = "standard",
) -> str:
    """The command's standard output; see `ask`."""
    return ask(argv, timeout, env, input, time_format).stdout


def ask(
    argv: list[str],
    timeout: float,
    env: Mapping[str, str] | None = None,
    input: str | None = None,  # noqa: A002
    time_format: str = "standard",
) -> Answer:
    """Runs one of Slurm's commands for at most `timeout` seconds, in the environment `env` (default: ours).

    `time_format` is what SLURM_TIME_FORMAT takes; "%s" gives seconds since 1970.
    Raises SlurmMissing, SlurmUnreachable (nobody answered, in time or at all; sbatch's job may have been taken all the
    same), SlurmDown (the command could not be started, so nobody was asked) or SlurmRefused with Slurm's reason.
    """
    import subprocess  # 6 ms that a cached answer does without

    environment = _environment(argv[0], os.environ if env is None else env, time_format)
    with _started(argv, environment, has_input=input is not None) as process:
        try:
            stdout, stderr = process.communicate(None if input is None else os.fsencode(input), timeout)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise _silent(argv[0], timeout, os.fsdecode(error.stderr or b"")) from error
        except BaseException:  # Ctrl-C too
            process.kill()
            raise
    answer = Answer(_text(stdout), _text(stderr))
    if process.returncode:
        raise _error(argv[0], process.returncode, answer)
    return answer


def _started(argv: list[str], environment: Mapping[str, str], has_input: bool) -> subprocess.Popen[bytes]:
    import subprocess

    stdin = subprocess.PIPE if has_input else subprocess.DEVNULL
    try:
        return subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    except (FileNotFoundError, PermissionError) as error:
        raise _missing(argv[0]) from error
    except OSError as error:  # too many words, too many processes, no memory
        raise SlurmDown(f"{argv[0]} cannot be started: {(error.strerror or str(error)).lower()}") from error


def configured() -> bool:
    """Whether Slurm's commands are configured for a cluster. They are called only if no configuration file is in a
    usual place."""
    if os.environ.get("SLURM_CONF") or any(map(os.path.exists, _CONFIGURATIONS)):
        return True
    try:
        run(["sinfo", "--noheader", "--summarize"], 10)
    except SlurmUnconfigured:
        return False
    except (SlurmUnreachable, SlurmRefused):  # it knows of one, which is in trouble
        return True
    return True


def _text(output: bytes) -> str:
    # Comments and names may hold any bytes; they must come back as they went in.
    return output.decode("utf-8", errors="surrogateescape")


def _environment(command: str, env: Mapping[str, str], time_format: str) -> dict[str, str]:
    """The environment of a command. A job inherits that of sbatch, so it is not changed there."""
    if command == "sbatch":
        return dict(env)
    # SQUEUE_PARTITION, SINFO_FORMAT, SCANCEL_INTERACTIVE, … would change what is asked.
    kept = {name: value for name, value in env.items() if not name.startswith(f"{command.upper()}_")}
    return {**kept, "LC_ALL": "C", "SLURM_TIME_FORMAT": time_format}


def _missing(command: str) -> SlurmMissing:
    return SlurmMissing(
        f"{command} is not installed here; launch.backend=local runs on this machine, "
        "or launch from a login node of the cluster"
    )


def _silent(command: str, timeout: float, stderr: str) -> SlurmUnreachable:
    if _UNCONFIGURED.search(stderr):
        return _unconfigured(command, reason(stderr))
    if "temporarily unable to accept" in stderr:  # sbatch would go on trying for minutes
        return SlurmUnreachable(f"{command}: Slurm has as many jobs as it keeps (MaxJobCount); try again in a while")
    return SlurmUnreachable(f"{command} got no answer within {timeout:g} s; {_NEXT}")


_NEXT = "try again in a minute; `scontrol ping` tells whether Slurm's controller is up"


def _unconfigured(command: str, why: str) -> SlurmUnconfigured:
    return SlurmUnconfigured(
        f"{command} finds no Slurm configuration here ({why}); set SLURM_CONF to the cluster's slurm.conf, "
        "launch from a login node, or use launch.backend=local"
    )


def _error(command: str, code: int, answer: Answer) -> SlurmUnreachable | SlurmRefused:
    output = answer.stderr.strip() or answer.stdout.strip()
    why = reason(output) or f"exit status {code}"
    if _UNCONFIGURED.search(output):
        return _unconfigured(command, why)
    if _UNREACHABLE.search(output) and not _NO_ACCOUNTING.search(output):
        return SlurmUnreachable(f"{command}: Slurm does not answer ({why}); {_NEXT}")
    own_words = re.search(rf"^{command}: (error|fatal): ", answer.stderr, re.MULTILINE) is not None
    return SlurmRefused(f"{command}: {why}", sure=own_words and 0 < code < 128)


def reason(output: str) -> str:
    """The error message of a command in one line, without its usual prefix."""
    lines = [_PREFIX.sub("", line.strip()).strip() for line in output.splitlines() if not line.startswith(_HINTS)]
    return one_line("; ".join(dict.fromkeys(line for line in lines if line)))
