"""Starts the parent of a pack: `python -m slurmopt.job.pack …`; `slurmopt.job.pack.pack_args` has the arguments."""

import signal

from slurmopt.job import signals

# The loop waits for it, and threads inherit what is blocked: so first of all.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
signals.install()  # before anything slower is imported: until then a signal kills

import sys  # noqa: E402

from slurmopt.job.pack.parent import main  # noqa: E402

main(sys.argv[1:])
