"""Price lists of clouds, from files that the user has, as prices of GPU-hours."""
