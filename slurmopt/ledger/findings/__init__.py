"""What was wasteful or wrong in an attempt: evidence in, findings with their cost and one change each out."""
