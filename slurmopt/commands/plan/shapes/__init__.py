"""`slurmopt plan +experiment=NAME`: shapes of a training."""
