"""Makes a run folder, and submits the run exactly once."""
