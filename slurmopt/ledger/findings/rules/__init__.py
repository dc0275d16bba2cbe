"""The rules of the findings, one module for each kind of waste."""
