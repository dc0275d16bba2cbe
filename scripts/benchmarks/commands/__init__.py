"""Benches of commands: launching, looking, the start of a rank, and other launchers."""
