"""The commands below `slurmopt profile`."""
