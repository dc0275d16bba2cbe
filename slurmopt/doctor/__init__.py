"""What `slurmopt doctor` looks at: Slurm, Python and its packages, limits, GPUs, network and file systems."""
