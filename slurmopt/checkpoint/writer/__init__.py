"""The writer process of each rank, which writes snapshots to the tiers while the training continues."""
