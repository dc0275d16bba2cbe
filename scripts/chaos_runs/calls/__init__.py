"""`scripts/chaos calls`: a fault at each call of a command."""
