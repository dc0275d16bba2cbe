"""Traces of a running training, through the profiler that is part of torch (Kineto)."""
