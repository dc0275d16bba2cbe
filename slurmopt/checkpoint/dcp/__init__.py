"""Checkpoints through torch.distributed.checkpoint, and their export to the formats of others."""
