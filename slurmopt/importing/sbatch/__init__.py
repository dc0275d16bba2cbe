"""What a batch script asks Slurm for: its directives, and the srun in front of its training."""
