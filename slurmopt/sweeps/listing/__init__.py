"""What `slurmopt list` shows: a line for each run and sweep."""
