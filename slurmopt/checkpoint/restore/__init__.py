"""Restores the newest complete checkpoint into the state of the training."""
