"""Starts one rank of a run: `python -m slurmopt.job FOLDER …`; `slurmopt.job.rank_args` describes the arguments."""

from slurmopt.job import signals

signals.install()  # before anything slower is imported: until then a signal kills

import sys  # noqa: E402

from slurmopt.job.worker.rank import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
