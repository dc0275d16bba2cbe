"""Executes a plan: checks it, renders its script, and submits or prints it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from slurmopt import command_output
from slurmopt.launching.check import check
from slurmopt.launching.preflight import preflight
from slurmopt.launching.remarks.of_launch import remarks
from slurmopt.run_folder.access.files import read_script
from slurmopt.run_folder.access.open_folders import holding
from slurmopt.runs.submit.plan import Plan
from slurmopt.slow_notice import slow_notice
from slurmopt.sweeps.submit.plan import SweepPlan

if TYPE_CHECKING:
    from slurmopt.backends.protocol import Backend


def launch(plan: Plan) -> int:
    """Checks the plan against the cluster and carries it out, or prints what would be submitted."""
    settings = plan.job.settings
    if settings.launch.json:
        command_output.expect_json()
    backend, script = ready(plan)
    if settings.launch.dry_run:
        return _show(plan, script)
    if backend.slurm and settings.launch.check:
        from slurmopt.slurm.cluster.estimate import estimate

        with slow_notice("asking Slurm when it could start"):
            plan.estimate = estimate(script)
    if isinstance(plan, SweepPlan):
        from slurmopt.sweeps.submit.submission import launch_sweep

        return launch_sweep(plan, script)
    from slurmopt.runs.submit.launch_run import launch_run

    return launch_run(plan, backend, script)


def submit(plan: Plan) -> None:
    """Checks the plan against the cluster and submits it: prints nothing, and waits for nothing. Raises CheckError,
    SlurmError and FolderError."""
    backend, script = ready(plan)
    if isinstance(plan, SweepPlan):
        from slurmopt.sweeps.submit.submission import submit_sweep

        with holding([plan.sweep.path]):
            submit_sweep(plan, script)
    else:
        from slurmopt.runs.submit.launch_run import submit_run

        submit_run(plan, backend, script)


def ready(plan: Plan) -> tuple[Backend, str]:
    """The backend and the script of a plan that the cluster can run. Raises CheckError."""
    from slurmopt import backends

    backend, settings = backends.load(plan.backend), plan.job.settings
    as_it_lies = plan.existing and plan.changes is None
    script = read_script(plan.job.folder.script) if as_it_lies else backend.script(plan.job)
    if backend.slurm and settings.launch.check:
        check(settings, tolerant=bool(settings.launch.dry_run))
    if settings.launch.doctor and not settings.launch.dry_run:
        preflight(plan.job.folder.path.parent.parent, settings.checkpoint, backend.slurm)
    is_first = not plan.existing and not isinstance(plan, SweepPlan)
    for line in remarks(settings, plan.job.folder if is_first else None):
        command_output.warn(line)
    return backend, script


def _show(plan: Plan, script: str) -> int:
    from slurmopt.slurm.script.render import supervisor

    run, is_full = plan.job.folder, plan.job.settings.launch.dry_run == "full"
    count = len(plan.points) if isinstance(plan, SweepPlan) else 1
    if plan.job.settings.launch.json:
        answer = {"run": str(run.path), "name": plan.job.name, "backend": plan.backend, "job_ids": [], "runs": count}
        full = {"supervisor": supervisor()} if is_full else {}
        command_output.print_json({**answer, "script": script, **full})
    else:
        sys.stdout.write(f"{script}\n{supervisor()}" if is_full else script)
        sys.stdout.flush()
    what = f"{count:,} points" if isinstance(plan, SweepPlan) else "it"
    print(
        f"slurmopt: dry run, nothing submitted; {what} would go to {run.path} by {plan.backend}; "
        f"launch.id={run.id} submits this very script",
        file=sys.stderr,
    )
    if not is_full:
        print(f"slurmopt: the script runs {run.supervisor}; launch.dry_run=full prints that, too", file=sys.stderr)
    return 0
