"""Benches of `slurmopt.training`."""
