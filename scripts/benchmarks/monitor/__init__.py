"""What measuring costs: the sampler of a node, and the calls of a training."""
