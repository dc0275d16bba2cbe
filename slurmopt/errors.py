"""The exceptions of slurmopt, with the exit status of each.

    SlurmoptError                     exit status 1
    ├── InputError                    2   invalid input; nothing was submitted
    │   ├── ConfigError                   an invalid key or value of the config
    │   ├── CheckError                    the cluster does not have the requested resources; lists all findings
    │   ├── RunError                      no such run, or its state does not permit the request
    │   │   └── RunNotFound                   no run has that name
    │   └── FolderError                   the run folder cannot be created or written
    ├── SlurmError                    1   a failed command of Slurm
    │   ├── SlurmMissing              2   Slurm's commands are not installed on this machine
    │   ├── SlurmUnreachable              slurmctld does not answer
    │   │   ├── SlurmDown                     connection refused, or the command cannot start: nothing was sent
    │   │   └── SlurmUnconfigured             Slurm's commands are installed, but not configured for a cluster
    │   ├── SlurmRefused              2   sbatch rejected the job; has the reason
    │   ├── SubmissionUnknown             it is unknown whether the job was accepted
    │   └── SubmissionNotNoted            the job was accepted, but the journal could not be written
    ├── StorageError                  1   a failed operation of a file system or S3: no space, deadline exceeded
    │   ├── StorageRefused                a permanent failure: no permission, no such bucket
    │   ├── StorageBroken                 the data read differ from the data written
    │   └── StagingError                  a source cannot be copied to the disk of a node; says who is at fault
    ├── RunFailed                     1   raised by `result()` of a run that ended without success; has its traceback
    └── JobError                      1   an error in the job
        ├── RendezvousError               ranks did not join the process group in time
        ├── CheckpointError               a state cannot be saved or restored, or a checkpoint is damaged or foreign
        │   └── RanksLost                     the other ranks did not take part in a save or restore
        ├── Pruned                    0   raised by progress(): the search has stopped this trial
        └── Requeue                  75   raised by training code that has saved its state, to be restarted

Each message states the problem, its place, and the valid values in one line.
"""

from __future__ import annotations

import os


class SlurmoptError(Exception):
    """Base class of all errors of slurmopt. `exit_status`: the exit status of the command line."""

    exit_status = 1


class InputError(SlurmoptError):
    """Invalid input of the user. Nothing was submitted."""

    exit_status = 2


class ConfigError(InputError):
    """An invalid key or value of the config. `key`: its dotted path, or None. `valid`: all values that would be valid,
    where these are a few words; else None."""

    def __init__(self, message: str, key: str | None = None, valid: list[str] | None = None) -> None:
        super().__init__(f"{key}: {message}" if key else message)
        self.key = key
        self.valid = valid


class CheckError(InputError):
    """The cluster cannot run the job. `findings`: all problems, one line each."""

    def __init__(self, findings: list[str]) -> None:
        super().__init__("\n".join(findings))
        self.findings = findings


class RunError(InputError):
    """The run does not exist, or its state does not permit the request."""


class RunNotFound(RunError):
    """No run has the name that was given."""


class FolderError(InputError):
    """A run folder cannot be created or written: no permission, a full disk, an unsafe path."""


class SlurmError(SlurmoptError):
    """A command of Slurm failed or did not respond."""


class SlurmMissing(SlurmError):
    """Slurm's commands are not installed on this machine."""

    exit_status = 2


class SlurmUnreachable(SlurmError):
    """slurmctld did not answer within the timeout."""


class SlurmDown(SlurmUnreachable):
    """The connection to slurmctld was refused, or the command could not be started. Nothing was sent."""


class SlurmUnconfigured(SlurmUnreachable):
    """Slurm's commands are installed, but not configured for a cluster."""


class SlurmRefused(SlurmError):
    """sbatch rejected the job; the message has the reason.

    `sure`: whether Slurm itself gave that reason. Otherwise the job may have been submitted, as when the command was
    killed, or a wrapper of the command failed.
    """

    exit_status = 2

    def __init__(self, message: str, sure: bool = True) -> None:
        super().__init__(message)
        self.sure = sure


class SubmissionUnknown(SlurmError):
    """The connection was lost, and it is unknown whether the job was accepted."""


class SubmissionNotNoted(SlurmError):
    """The job was submitted, but the journal of the run could not be written, as on a full disk. The message has the
    job ID."""


class StorageError(SlurmoptError):
    """An operation of a file system or S3 failed: no space, no permission, no such bucket, deadline exceeded."""


class StorageRefused(StorageError):
    """A failure that persists until it is repaired: no permission, no such bucket, a file in place of a folder."""


class StorageBroken(StorageError):
    """The data read differ from the data written: the disk, the server or the network corrupts data."""


class StagingError(StorageError):
    """A source cannot be copied to the disk of a node. `fault`: `user` (the source or the config is wrong, or the disk
    is too small), `node` (its disk is broken, or filled by others), `source` (its file system or S3 fails)."""

    def __init__(self, message: str, fault: str) -> None:
        super().__init__(message)
        self.fault = fault


class RunFailed(SlurmoptError):
    """Raised by `Run.result()`: the run ended without success. `state`: failed, killed, cancelled or lost; `traceback`:
    that of the rank that failed first, or None."""

    def __init__(self, message: str, state: str, traceback: str | None = None) -> None:
        super().__init__(message if traceback is None else f"{message}\n\n{traceback.rstrip()}")
        self.state, self.traceback = state, traceback


class JobError(SlurmoptError):
    """An error in the job."""


class RendezvousError(JobError):
    """Ranks did not join the process group within the timeout."""


class CheckpointError(JobError):
    """A state cannot be saved or restored, or a checkpoint is damaged, foreign or of a newer format."""


class RanksLost(CheckpointError):
    """The other ranks did not take part in a collective operation: they have ended, or run different code."""


class Pruned(JobError):
    """Raised by `progress` if the search has stopped this trial. Do not catch it: the point then counts as finished."""

    exit_status = 0


class Requeue(JobError):
    """Raise this in training code to request another attempt after the state was saved."""

    exit_status = 75


def why_failed(error: Exception) -> str:
    """Returns the message of an OSError without errno and file name, or the message of another error."""
    message = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return message[:1].lower() + message[1:] if isinstance(error, OSError) else message


def with_place(error: Exception) -> str:
    """Returns the same message, prefixed with the files of the error if it has any."""
    if not isinstance(error, OSError):
        return str(error)
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, (str, bytes))]
    return ": ".join(filter(None, (" to ".join(names), why_failed(error))))


def labelled(label: str, message: str) -> str:
    """Returns `message`, prefixed with `label`, the run's, unless it already begins with it."""
    return message if message.startswith((f"{label} ", f"{label}:")) else f"{label}: {message}"


def one_line(text: str) -> str:
    """Returns `text` with all control characters escaped, so that a message is one line on any terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def plain_lines(text: str) -> str:
    """Returns `text` with all control characters escaped except for newlines and tabs, so that untrusted text cannot
    move the cursor, change the title or hide text on a terminal."""
    if text.isprintable():
        return text
    return "\n".join("\t".join(map(one_line, line.split("\t"))) for line in text.split("\n"))
