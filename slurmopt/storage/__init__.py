"""Where checkpoints lie: folders, Lustre, S3."""
