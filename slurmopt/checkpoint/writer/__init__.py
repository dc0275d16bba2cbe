"""The writer process of each rank: takes snapshots to the tiers while the training goes on."""
