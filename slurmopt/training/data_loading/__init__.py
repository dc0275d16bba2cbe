"""slurmopt.training.loader: a DataLoader with settings for the job, and what its batches cost."""
