"""`python -m slurmopt.runtime FOLDER …`: one rank of a run; see `slurmopt.runtime.call` for its words."""

from slurmopt.runtime import signals

signals.install()  # before anything slower is imported: until then a signal kills

import sys  # noqa: E402

from slurmopt.runtime.rank import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
