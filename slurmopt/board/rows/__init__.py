"""The rows of the board: read from the folders of runs and sweeps, kept up to date, filtered and ordered."""
