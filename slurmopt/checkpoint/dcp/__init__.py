"""Storage for torch.distributed.checkpoint (DCP), and the export of checkpoints to other formats."""
