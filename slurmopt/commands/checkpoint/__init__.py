"""`slurmopt checkpoint`: what a run has saved, for people at a login node. Only `export` needs torch."""
