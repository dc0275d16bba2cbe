"""The commands below `slurmopt tune`."""
