"""What `slurmopt metrics` gives out: the series of the nodes of an attempt."""
