"""The job side: what runs on the compute nodes, from the start of a rank to the verdict on the attempt."""
