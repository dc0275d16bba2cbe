"""Benchmarks that run in every rank, with torch: what `slurmopt bench` starts here, or as a run on the cluster."""
