"""Asks the ranks of a running run for traces, and waits for them."""
