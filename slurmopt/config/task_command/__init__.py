"""The `task` group: whether the command or the function can start."""
