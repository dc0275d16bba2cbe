"""What `scripts/chaos` runs: trainings that are killed, and checkpoints that are damaged."""
