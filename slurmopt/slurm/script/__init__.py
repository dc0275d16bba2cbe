"""The text of a job script, from a config. Pure."""
