"""New files for a user's project: what is there already, what fits it, and writing without overwriting."""
