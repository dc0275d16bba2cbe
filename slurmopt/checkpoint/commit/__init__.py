"""A save becomes a checkpoint: what the ranks wrote is put together, committed, and pruned by retention."""
