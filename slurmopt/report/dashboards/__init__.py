"""Dashboards and alarms for the names that the metric sinks expose."""
