"""Accounting: what a release costs, the ledger that never forgets a charge, and the statement for outsiders."""
