"""In the job: rank facts, signals, heartbeat, process group, the user's function or command, the verdict."""
