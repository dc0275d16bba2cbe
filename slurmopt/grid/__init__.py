"""What the points of a sweep are: arithmetic that the login side and the job share."""
