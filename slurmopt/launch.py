"""`python -m slurmopt.launch +experiment=x`: compose, check, render, submit; `slurmopt.launching` does it."""

from __future__ import annotations

import sys

from slurmopt.started_by_m import has_current_folder

if __name__ == "__main__" and has_current_folder():
    sys.path.pop(0)

import contextlib

from slurmopt.exit_status import guarded
from slurmopt.launching import arguments
from slurmopt.launching.launch_flags import parser as parser


def main(argv: list[str] | None = None) -> int:
    """Launches what the command line says; returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return guarded(_plan_and_launch, words, "launch")


def _plan_and_launch(words: list[str]) -> int:
    parsed = arguments.parse(words)
    if parsed.text is not None:
        print(parsed.text)
        return 0
    if parsed.shown_by_hydra:
        from slurmopt.config.composition.show import show

        return show(parsed.shown_by_hydra, parsed.config_dir)
    from slurmopt.launching import execute, run_plan, sweep_plan

    # Standard output is for the script or the JSON alone; the user's modules and resolvers may print.
    with contextlib.redirect_stdout(sys.stderr):
        make = sweep_plan.plan_sweep if parsed.multirun else run_plan.plan
        planned = make(parsed.overrides, parsed.config_dir)
    return execute.launch(planned)


if __name__ == "__main__":
    sys.exit(main())
