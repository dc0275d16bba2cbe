"""The words of the file format of a series: see `slurmopt.run_folder.series.series`."""

from __future__ import annotations

FORMAT = 1
KEY = "slurmopt_series"
NOT_SUPPORTED, NOT_ALLOWED, NOT_MEASURED = "not supported", "not allowed", "not measured"
ABSENT = (NOT_SUPPORTED, NOT_ALLOWED, NOT_MEASURED)
"""Why a column has no values."""
PEAK, LAST = "_peak", ".step"
"""Endings of columns of which intervals have the maximum, and the last value, instead of the mean."""
SHARE = ".share"
"""Ending of the columns of a rank's activities. An activity that the rank has not begun yet has no value: it took no
time."""
LONGEST_NAME = 128
"""Characters of a column's name, all of them printable."""
LONGEST_NODE = 255
"""Characters of a node's name."""
