"""What a search may try, and the study file."""
