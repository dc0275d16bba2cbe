"""Trainings to start from: each is one file, run by the experiment of the same purpose in `conf/experiment/`."""
