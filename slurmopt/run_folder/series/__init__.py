"""The series of a node: the format of its files, their reader, and the names of its columns elsewhere."""
