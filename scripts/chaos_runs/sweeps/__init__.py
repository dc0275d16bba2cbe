"""`scripts/chaos sweeps`: a sweep that lives through faults."""
