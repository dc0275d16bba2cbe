"""A training on spot instances, replayed over a recorded series of how many instances could be had."""
