"""Prepares the environment for sbatch, also if the launching shell is itself in a job.

Seen in a job's environment: SLURM_*, SLURMD_NODENAME, SRUN_* (in steps), PMI*, the variables that select its GPUs, and
the login environment as it was exported, so a site's SBATCH_* defaults too; of those Slurm itself sets SBATCH_MEM_BIND*
and SBATCH_CPU_BIND* alone. A new job that inherited the rest would have the old one's tasks, memory and GPUs.

sbatch lets SBATCH_* win over the script's own directives: SBATCH_ACCOUNT beats `#SBATCH --account`. What the script
states was asked for in the config, so those variables have to go as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_OF_A_JOB = re.compile(
    r"SLURM_|SLURMD_|SRUN_|PMI_|PMI2_|PMIX_|PET_|SBATCH_MEM_BIND|SBATCH_CPU_BIND|SLURMOPT_(RUN_FOLDER|RECORDS|SWEEP|POINT|CONFIG|ATTEMPT|LOCAL_RANK|PROGRESS|SUPERVISOR|BELOW_PROFILER|HELD)$"
)
_KEPT = frozenset({"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"})
_GPU_CHOICE = frozenset({"CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"})
_NEVER = frozenset({"SBATCH_WAIT", "SBATCH_ARRAY_INX"})
"""Variables that make sbatch wait for the end of the job, or make an array of a single run."""
_VARIABLES = {
    "array": ["ARRAY_INX"],
    "time": ["TIMELIMIT"],
    "switches": ["REQ_SWITCH", "WAIT4SWITCH"],
    "requeue": ["REQUEUE", "NO_REQUEUE"],
    "no-requeue": ["REQUEUE", "NO_REQUEUE"],
    **{option: ["MEM_PER_NODE", "MEM_PER_CPU", "MEM_PER_GPU"] for option in ("mem", "mem-per-cpu", "mem-per-gpu")},
    **{option: ["GPUS", "GPUS_PER_NODE", "GPUS_PER_TASK"] for option in ("gpus", "gpus-per-node", "gpus-per-task")},
}
"""Options of sbatch whose SBATCH_ variables have other names, or that exclude each other."""


def clean_environment(environ: Mapping[str, str], script: str = "") -> dict[str, str]:
    """`environ` without the variables of an enclosing job, and without defaults for options that `script` sets."""
    dropped = _NEVER | {variable for option in stated_options(script) for variable in _variables(option)}
    kept = {name: value for name, value in environ.items() if name not in dropped}
    if "SLURM_JOB_ID" not in environ:
        return kept
    gpus = _GPU_CHOICE if {"SLURM_JOB_GPUS", "SLURM_STEP_GPUS"} & environ.keys() else frozenset()
    return {name: value for name, value in kept.items() if name in _KEPT or not (_OF_A_JOB.match(name) or name in gpus)}


def stated_options(script: str) -> list[str]:
    """The long options in the `#SBATCH` lines of `script`."""
    return re.findall(r"^#SBATCH\s+--([a-z][a-z0-9-]*)", script, re.MULTILINE)


def _variables(option: str) -> list[str]:
    names = _VARIABLES.get(option, [option.upper().replace("-", "_")])
    return [f"SBATCH_{name}" for name in names]
