"""The place of slurmopt's Hydra launcher plugin. Hydra imports it at the start of every application: keep it empty."""
