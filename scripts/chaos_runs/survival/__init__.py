"""`scripts/chaos survival` and `frameworks`: trainings that live through faults."""
