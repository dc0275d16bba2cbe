"""What a trace of the profiler says: shares of time, slow collectives, top kernels, and sentences about them. Pure."""
