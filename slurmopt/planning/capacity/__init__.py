"""How many GPUs to commit to, out of what jobs have used: demand by the hour, its cost, and the wait."""
