"""Benches of sweeps and searches."""
