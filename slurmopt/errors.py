"""The errors that slurmopt raises, in one tree.

    SlurmoptError                     exit status 1
    ├── InputError                    2   what the user wrote or asked for
    │   ├── ConfigError                   a key or value of the config
    │   ├── CheckError                    more than the cluster has; all findings at once
    │   ├── RunError                      no such run, or one that is still alive
    │   └── FolderError                   the run folder cannot be made or written
    ├── SlurmError                    1   what Slurm answered, or did not
    │   ├── SlurmMissing              2   its commands are not installed here
    │   ├── SlurmUnreachable              slurmctld does not answer
    │   │   ├── SlurmDown                     nobody listens there, or its command cannot start: nothing was sent
    │   │   └── SlurmUnconfigured             its commands are here, but know of no cluster
    │   ├── SlurmRefused              2   sbatch said no, with its reason
    │   ├── SubmissionUnknown             nobody can tell whether the job was accepted
    │   └── SubmissionNotNoted            it was accepted, and the journal could not be written
    ├── StorageError                  1   what a folder or S3 answered: no space, deadline over
    │   ├── StorageRefused                what it will answer again: no permission, no such bucket
    │   └── StorageBroken                 it gives back other bytes than it was given
    └── JobError                      1   inside the job
        ├── RendezvousError               ranks that did not arrive
        ├── CheckpointError               a state that cannot be saved or restored, a damaged or foreign checkpoint
        │   └── RanksLost                     the other ranks did not come to a save or restore
        ├── Pruned                    0   raised by progress(): the search has given this trial up
        └── Requeue                  75   raised by training code: state is saved, start me again

Each message is one line that a person can act on: what is wrong, where, and what would be valid.
"""

from __future__ import annotations

import os


class SlurmoptError(Exception):
    """Base of all of them; `exit_status` is what the command line ends with."""

    exit_status = 1


class InputError(SlurmoptError):
    """Something the user wrote or asked for; nothing was submitted."""

    exit_status = 2


class ConfigError(InputError):
    """A key or value of the config. `key` is its dotted path, where there is one."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(f"{key}: {message}" if key else message)
        self.key = key


class CheckError(InputError):
    """The cluster cannot run this; carries one line a finding, all of them."""

    def __init__(self, findings: list[str]) -> None:
        super().__init__("\n".join(findings))
        self.findings = findings


class RunError(InputError):
    """No such run, or a run in a state that forbids what was asked."""


class FolderError(InputError):
    """A run folder that cannot be made or written: permissions, a full disk, a hostile path."""


class SlurmError(SlurmoptError):
    """What Slurm answered, or did not."""


class SlurmMissing(SlurmError):
    """Slurm's commands are not installed on this machine."""

    exit_status = 2


class SlurmUnreachable(SlurmError):
    """slurmctld did not answer in time."""


class SlurmDown(SlurmUnreachable):
    """Nobody listens where slurmctld should, or the command could not be started: nothing was sent."""


class SlurmUnconfigured(SlurmUnreachable):
    """Slurm's commands are installed, but know of no cluster."""


class SlurmRefused(SlurmError):
    """sbatch refused the job; the message carries its reason.

    `sure`: that reason is Slurm's own. A command that was killed, or that a wrapper let fail, may have done its work.
    """

    exit_status = 2

    def __init__(self, message: str, sure: bool = True) -> None:
        super().__init__(message)
        self.sure = sure


class SubmissionUnknown(SlurmError):
    """The connection broke off and nobody can tell whether the job was accepted."""


class SubmissionNotNoted(SlurmError):
    """Slurm has the job, but the run's journal could not be written: a full disk. The message has the job's id."""


class StorageError(SlurmoptError):
    """What a folder or S3 answered: no space, no permission, no such bucket, the deadline is over."""


class StorageRefused(StorageError):
    """What it answers until somebody mends it: no permission, no such bucket, a file where a folder has to be."""


class StorageBroken(StorageError):
    """It gives back other bytes than it was given: the disk, the server, or the way there is broken."""


class JobError(SlurmoptError):
    """Something that went wrong inside the job."""


class RendezvousError(JobError):
    """Ranks that did not arrive at the process group in time."""


class CheckpointError(JobError):
    """A state that cannot be saved or restored, or a checkpoint that is damaged, foreign or of a newer format."""


class RanksLost(CheckpointError):
    """The other ranks did not come to what all do together: they are gone, or do something else."""


class Pruned(JobError):
    """Raised by `progress`: the search has given this trial up. Let it through: the point then counts as finished."""

    exit_status = 0


class Requeue(JobError):
    """Raised by training code that has saved its state and wants another attempt."""

    exit_status = 75


def why_failed(error: Exception) -> str:
    """What the system said, without its number; the caller names the file. Of other errors their message."""
    said = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return said[:1].lower() + said[1:] if isinstance(error, OSError) else said


def with_place(error: Exception) -> str:
    """The same, behind the file that it is about, where there is one."""
    if not isinstance(error, OSError):
        return str(error)
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, (str, bytes))]
    return ": ".join(filter(None, (" to ".join(names), why_failed(error))))


def labelled(label: str, message: str) -> str:
    """`message` behind the run that it is about, unless it begins with that."""
    return message if message.startswith((f"{label} ", f"{label}:")) else f"{label}: {message}"


def one_line(text: str) -> str:
    """`text` with every control character shown as an escape, so that a message stays one line on any terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def plain_lines(text: str) -> str:
    """`text` with its lines and tabs as they are and every other control character shown as an escape: what somebody
    else wrote moves no cursor, changes no title and hides nothing on a terminal."""
    if text.isprintable():
        return text
    return "\n".join("\t".join(map(one_line, line.split("\t"))) for line in text.split("\n"))
