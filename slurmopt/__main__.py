"""`python -m slurmopt` is the `slurmopt` command."""

from __future__ import annotations

import sys

from slurmopt.started_by_m import has_current_folder

if has_current_folder():
    sys.path.pop(0)

from slurmopt.cli import main

sys.exit(main())
