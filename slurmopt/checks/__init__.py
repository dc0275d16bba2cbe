"""How checks of a machine, a cluster or a file system say what they found, and how they are run."""
