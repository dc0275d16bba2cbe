"""The network of a node: facts about it, and the environment variables that NCCL, libfabric and torch need for it.

The package imports neither torch nor NVML, and nothing in it waits for a service that may not be there.
"""
