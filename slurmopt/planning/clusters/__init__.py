"""Clusters as data: their nodes, network, topology and storage, and what follows for a training."""
