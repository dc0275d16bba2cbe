"""Benches of checkpoints: saves, restores, uploads, and what many ranks cost."""
