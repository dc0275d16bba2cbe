"""The commands of `slurmopt network`."""
