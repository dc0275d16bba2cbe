"""Which points an array task runs next: those of a grid or those of a search."""
