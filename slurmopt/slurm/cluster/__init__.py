"""What the cluster has and allows, and whether a job fits in."""
