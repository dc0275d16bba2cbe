"""One rank from start to end: facts, heartbeat, the user's function or command."""
