"""From the newest complete checkpoint back into the state of the training."""
