"""Turns the files of a run folder into the records that the ledger and the findings are computed from."""
