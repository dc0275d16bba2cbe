"""Profilers around the training: nsys and ncu start it, py-spy looks at it. None of them ends it."""
