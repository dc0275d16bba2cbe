"""Submitting the array jobs of a sweep, each point exactly once."""
