"""The health check of a node at the start of an attempt: in the ranks' own processes, with no Slurm step and no RPC."""
