"""The copy of the state in host memory, and which rank copies what."""
