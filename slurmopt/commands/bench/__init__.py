"""The commands below `slurmopt bench`."""
