"""Jobs of a Hydra application that knows nothing of slurmopt: what its launcher hands to them, and what comes back."""
