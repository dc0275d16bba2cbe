"""slurmopt's plugins of Hydra, which imports all of this package at the start of every application: keep it light."""
