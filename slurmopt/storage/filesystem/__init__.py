"""Facts of the file system that holds a path: its mount, space, inodes and quota. Standard library only."""
