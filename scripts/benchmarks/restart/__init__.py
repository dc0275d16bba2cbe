"""Benches of restarts: what being restartable costs, and how long a restart takes."""
