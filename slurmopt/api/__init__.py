"""What `from slurmopt import submit` leads to: runs and sweeps as Python objects."""
