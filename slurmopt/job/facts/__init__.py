"""What a process of the job finds out about itself and its node: rank, GPUs, CPUs, open files, children."""
