"""`slurmopt plan size`: what runs need, beside what they ask for."""
