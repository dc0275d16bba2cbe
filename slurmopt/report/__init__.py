"""Reports on runs: text and pages from ledger, findings and series."""
