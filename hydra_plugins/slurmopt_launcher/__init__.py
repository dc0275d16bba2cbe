"""slurmopt's Hydra plugins. Hydra imports the whole package at the start of every application: keep imports light."""
