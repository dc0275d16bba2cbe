"""How the points of a sweep are."""
