"""Stands between a profiler and the training: how that ends is known also where the profiler is gone.

python -I -S beneath.py PLACE SUPERVISOR UNBLOCK word word …

Makes PLACE/claim, which says that it starts the training. Writes PLACE/training, the training's process id, and
PLACE/status, how it ended, as in subprocess. Ends the training if the process SUPERVISOR ends. It is started as a file
and imports nothing of slurmopt, so it starts quickly.
"""

import os
import select
import signal
import sys

_FATAL = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_LOOK_SECONDS = 0.5


def main(place: str, supervisor: int, unblocked: bool, words: list[str]) -> int:
    """Runs the training and returns the exit status, as a shell tells it."""
    try:
        os.close(os.open(os.path.join(place, "claim"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:  # the profiler seemed gone, and the training was started without it
        return 125
    watched = _opened(supervisor)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_FATAL})
    training = os.fork()
    if training == 0:
        _become(words, mask - {signal.SIGUSR1} if unblocked else mask)
    _write(os.path.join(place, "training"), training)
    while True:
        signal.sigtimedwait({signal.SIGCHLD}, _LOOK_SECONDS)
        pid, status = os.waitpid(training, os.WNOHANG)
        if pid == training:
            break
        if watched is not None and select.select([watched], [], [], 0)[0]:
            os.kill(training, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    _write(os.path.join(place, "status"), code)
    return code if code >= 0 else 128 - code


def _opened(supervisor: int) -> "int | None":
    try:
        return os.pidfd_open(supervisor)
    except (OSError, AttributeError):  # Linux before 5.3: Slurm or the local runner ends what is left
        return None


def _become(words: "list[str]", mask: "set[int | signal.Signals]") -> None:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execvp(words[0], words)  # noqa: S606
    except OSError as error:
        os.write(2, f"slurmopt: task.command: {words[0]!r} cannot be started: {error.strerror}\n".encode())
    os._exit(127)


def _write(path: str, value: int) -> None:
    with open(f"{path}.part", "w") as file:
        file.write(str(value))
    os.rename(f"{path}.part", path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1", sys.argv[4:]))
