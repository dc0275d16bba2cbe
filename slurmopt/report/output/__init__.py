"""Reports as text for a terminal and as pages."""
