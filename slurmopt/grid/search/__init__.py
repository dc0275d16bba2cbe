"""The search space and the study file of a search."""
