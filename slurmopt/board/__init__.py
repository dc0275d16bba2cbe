"""The full-screen board of `slurmopt top`: what it shows is computed without a terminal, and drawn with Textual."""
