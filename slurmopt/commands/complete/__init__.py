"""Completion: what is accepted where the cursor is."""
