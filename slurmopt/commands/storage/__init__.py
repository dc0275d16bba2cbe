"""One module per command of `slurmopt storage`."""
