"""Checkpoints in a bucket of S3 or of an S3-compatible server: `store` has the Store, the rest is its parts."""
