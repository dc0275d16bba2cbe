"""The metric sink for Amazon CloudWatch."""
