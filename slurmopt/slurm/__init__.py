"""Slurm's language: its commands, states, limits, and the script it is given."""
