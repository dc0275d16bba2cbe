"""The status of runs, from their journals, their heartbeats and squeue."""
