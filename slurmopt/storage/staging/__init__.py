"""Copies a folder, a file or a prefix of S3 to the disk of a node: once, verified, and shared by the jobs of a user."""
