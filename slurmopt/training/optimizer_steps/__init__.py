"""The optimizer steps of a training loop: precision, clipping, bad steps, and micro-batches that are too large."""
