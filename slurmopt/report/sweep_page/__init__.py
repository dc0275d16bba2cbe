"""The page of a sweep's results."""
