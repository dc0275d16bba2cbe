"""`slurmopt plan spot`: a training over a trace of spot instances."""
