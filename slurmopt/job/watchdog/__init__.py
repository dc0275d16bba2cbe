"""Looks for hangs beside the ranks and collects their stack traces."""
