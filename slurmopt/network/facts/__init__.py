"""Facts about the network of a node: what they are, read from a file, and gathered from this machine."""
