"""The file formats: manifest, payload files and their segments, and the ledger of complete checkpoints."""
