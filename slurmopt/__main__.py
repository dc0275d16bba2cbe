"""`python -m slurmopt` is the `slurmopt` command."""

from __future__ import annotations

import sys

from slurmopt.cli import main

sys.exit(main())
