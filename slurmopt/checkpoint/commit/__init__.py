"""Commits saves: assembles the manifest from what all ranks wrote, records it in the ledger, applies retention."""
