"""Starts the sampler: `python -m slurmopt.job.monitor JSON`; `slurmopt.job.monitor.here` describes the argument."""

import signal

for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_SETMASK, ())  # what a rank blocks counts as awaited by those who signal a step

import os  # noqa: E402
import sys  # noqa: E402

from slurmopt.job.monitor.here import from_word  # noqa: E402
from slurmopt.job.monitor.sampler import run  # noqa: E402

os.umask(os.umask(0o077) | 0o027)  # what it makes is nobody else's to write, whatever the training's umask
run(from_word(sys.argv[1]))
os._exit(0)  # a source that hangs in a driver would keep a thread, and the node's step, alive
