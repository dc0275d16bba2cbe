"""A private Slurm cluster on one machine: real daemons, several nodes, no systemd."""
