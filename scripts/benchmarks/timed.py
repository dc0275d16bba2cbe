"""Runs one command and prints `seconds peak-MiB status`: python -I -S timed.py UNTIL argv…

A process of its own, and a slim one: what a child is forked from counts as its first memory. UNTIL is a folder in which
submitit leaves `JOBID_submission.sh`, at which the command counts as done and is ended; or "" for the command's end.
"""

import os
import signal
import sys
import time

POLL_SECONDS = 0.005


def submitted(folder: str) -> bool:
    try:
        return any(name[0].isdigit() and name.endswith("_submission.sh") for name in os.listdir(folder))
    except FileNotFoundError:
        return False


def start(argv: list[str]) -> int:
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.execvp(argv[0], argv)
    return pid


def seconds_until(folder: str, pid: int, since: float) -> float:
    """Waits for the submission, or for a command that ends without one."""
    while not submitted(folder) and not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(POLL_SECONDS)
    return time.perf_counter() - since


def main(until: str, argv: list[str]) -> None:
    since = time.perf_counter()
    pid = start(argv)
    seconds = None
    if until:
        seconds = seconds_until(until, pid, since)
        if submitted(until):
            os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - since if seconds is None else seconds
    code = 0 if until and submitted(until) else os.waitstatus_to_exitcode(status)
    print(seconds, usage.ru_maxrss / 1024, code)


main(sys.argv[1], sys.argv[2:])
