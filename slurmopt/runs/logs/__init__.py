"""Reading and following what the ranks of a run wrote."""
