"""Fixtures of the sampler's tests."""

from job.monitor.nvml_stub import nvml  # noqa: F401
