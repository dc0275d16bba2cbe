"""The parent of a packed array task: it imports torch once, and starts points in milliseconds.

python -m slurmopt.job.pack SWEEP SUBMISSION POINTS PER_TASK --side-by-side K --ranks R … (words of a rank)
"""
