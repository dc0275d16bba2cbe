"""The report on one run: what it shows, computed from what was read."""
