"""How the ranks of an attempt find and reach each other: the store of rank 0 and the process group."""
