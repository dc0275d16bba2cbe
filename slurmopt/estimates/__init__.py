"""What formulas say of an experiment, and of runs that have shown how right they are."""
