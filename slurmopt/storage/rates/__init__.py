"""Measures how fast a folder is: sequential, random, small files, metadata. Bounded in time and bytes."""
