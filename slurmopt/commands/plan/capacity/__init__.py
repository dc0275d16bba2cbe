"""`slurmopt plan capacity`: how many GPUs to commit to."""
