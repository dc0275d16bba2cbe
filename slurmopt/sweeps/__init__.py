"""Many runs from one launch: described, submitted as array jobs, looked at."""
