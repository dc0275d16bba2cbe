"""The sampler: a process on each node of an attempt that measures GPUs, memory, CPUs, network and ranks."""
