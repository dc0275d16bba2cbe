"""Looks at a bucket: whether it is reached, by whom, what is permitted, how it is set up, how fast it is."""
