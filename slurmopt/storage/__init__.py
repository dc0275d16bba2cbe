"""Storage backends for checkpoints: folders (with stripe layouts on Lustre) and S3."""
