"""What the points of a sweep came to: tables, rankings, pictures."""
