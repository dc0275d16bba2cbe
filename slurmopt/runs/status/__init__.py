"""How a run is, from its journal, its heartbeats and squeue."""
