"""Sweeps on this machine, without Slurm: a runner starts the array tasks, as many at a time as CPUs, memory and GPUs
allow."""
