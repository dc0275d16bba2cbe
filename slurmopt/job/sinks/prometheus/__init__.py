"""The metric sink for Prometheus."""
