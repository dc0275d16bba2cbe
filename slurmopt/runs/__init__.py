"""A run as its owner sees it: find, status, logs, cancel, list, follow."""
