"""The run folder: the seam between the login side, which makes it, and the job side, which fills it."""
