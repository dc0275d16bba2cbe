"""Finds variables of NCCL, torch, aws-ofi-nccl and libfabric that are wrong. The tables are in `network/variables/`."""
