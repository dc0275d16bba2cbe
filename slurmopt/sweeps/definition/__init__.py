"""From overrides to the points of a sweep."""
