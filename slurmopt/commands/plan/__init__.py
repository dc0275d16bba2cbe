"""The commands below `slurmopt plan`."""
