"""Jobs of a Hydra application that uses the slurmopt launcher: the data passed to them, and the values they return."""
