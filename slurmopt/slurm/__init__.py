"""The interface to Slurm: its commands, states and limits, and the job script."""
