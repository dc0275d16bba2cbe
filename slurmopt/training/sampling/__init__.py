"""The sampler that resumes on any number of ranks, and global batches that grow."""
