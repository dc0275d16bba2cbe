"""The files of a checkpoint: manifest, payloads and their segments, and the ledger of what is complete."""
