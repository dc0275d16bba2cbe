"""Turns the overrides of a multirun into the points of a sweep."""
