"""Reads and follows the logs of a run's ranks."""
