"""One file, one accountant: a module with an `Accountant` and its `PLACE` in tables, the loosest first."""
