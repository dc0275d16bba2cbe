"""From argv or a stored file to a composed, checked config."""
