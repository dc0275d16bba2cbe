"""Snapshots: the copy of the state in host memory, and its division between the ranks."""
