"""The typed schema: `conf/X/` and the group `X` of a config are described by `slurmopt/config/X.py`."""
