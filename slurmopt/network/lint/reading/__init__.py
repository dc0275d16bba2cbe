"""Where variables are set: scripts, container files, YAML, the environment. Nothing is executed or expanded."""
