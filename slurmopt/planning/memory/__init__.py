"""The memory of a training: weights, gradients and optimizer, activations, and the peak over the time of a step."""
