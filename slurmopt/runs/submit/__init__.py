"""Making a run folder and handing the run over to Slurm exactly once."""
