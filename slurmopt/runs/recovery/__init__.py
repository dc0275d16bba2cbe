"""Bringing runs back: `slurmopt tend` and `slurmopt retry`."""
