"""`scripts/chaos looks`: damaged run folders and odd command lines."""
