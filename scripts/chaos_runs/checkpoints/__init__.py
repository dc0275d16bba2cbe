"""`scripts/chaos checkpoints`: kills, damages and power loss."""
