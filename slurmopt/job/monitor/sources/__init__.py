"""The sources of the sampler: what each measures on a node."""
