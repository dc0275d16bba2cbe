"""Reports on jobs that slurmopt did not launch."""
