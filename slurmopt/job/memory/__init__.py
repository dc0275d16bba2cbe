"""What a training keeps in memory: peaks by phase and module, allocations by line, before and after some steps."""
