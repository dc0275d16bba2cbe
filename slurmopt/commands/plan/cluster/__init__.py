"""`slurmopt plan cluster`: a training on several clusters."""
